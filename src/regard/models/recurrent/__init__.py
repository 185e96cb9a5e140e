"""Recurrent models: one encoder, and the decoders of Sutskever et al. 2014, Bahdanau et al. 2015, Luong et al. 2015."""
