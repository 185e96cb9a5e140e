"""An HTTP API over trained models: each is loaded once, and requests of different clients are searched together.

    settings  what a server may be told
    wire      what goes over it: the shapes of requests, and how bytes become one
    answers   the shapes of answers, and how what was found becomes one
    gate      who may pass, how much a request may be, and what is counted of it
    door      who may ask at all, as far as browsers tell
    queue     requests waiting for a model, and who takes them
    searching lines of many clients in one search
    finishing from what was found to a translation
    served    a model and its queue
    worker    a thread that takes lines from a queue and goes step by step with all of them
    waiting   from the event loop to the workers and back
    app       the routes
    manual    what the API says of itself, as a page
    server    the socket, the signals, and how it ends
    look      the explorer's page beside all this: look_talk, a conversation over a WebSocket; look_making, a
              model that is trained while one watches

A request names models and text, and nothing else: no path, no address and no code can be reached from one.
"""
