"""The recurrent families: an encoder that leaves its states, and three decoders that look at them ever more."""
