"""An HTTP API for trained models: each model is loaded once, and requests of different clients share one search.

    settings         address, access control and limits of a server
    auth             the token that clients must send
    errors           the shape of error responses, and their codes
    request_context  the id of a request, and what the access log writes about it
    access_log       the access log
    requests         JSON schemas of requests, and their parsing
    responses        JSON schemas of responses, and their construction
    chat_requests    JSON schema of a request to a chatbot
    chat_responses   JSON schemas of responses of chatbots
    openai_chat      requests and responses in the form of OpenAI's chat completions
    libretranslate   requests and responses in the form of LibreTranslate
    languages        the language pairs of the models
    limits           middleware for authentication, request limits and metrics
    origins          middleware that checks the Host and Origin headers
    metrics          Prometheus metrics
    queue            the bounded queue of jobs in front of a model
    throughput       how long the jobs in a queue will take
    service          a served model, and the search its workers share
    translator_service, chat_service  how translators and chatbots use it
    predictor_service  a model that predicts something about a text in one pass
    worker           the threads that run the search
    dispatch         from the event loop to the workers and back
    health           whether the server is alive and ready
    app              the application, and the handlers of requests
    handlers         what all handlers share
    chat_handlers    the handlers of requests to chatbots
    routes           the paths, and what the OpenAPI document says about each
    openapi          the rest of the OpenAPI document
    api_page         the HTML page that documents the routes
    connections      limits on the number of connections, and on how long clients may take
    listener         accepts connections within the limit of open files
    server           the socket, the signals and the shutdown
    explorer         the web explorer's page, beside the HTTP API
    explorer_login   the explorer's page for the token
    explorer_socket  the explorer's WebSocket
    explorer_models  the explorer's models, loaded or trained in the background

A request contains text and the name of a model. No path, address or code can be reached from it.
"""
