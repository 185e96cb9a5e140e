"""The handlers of the routes of chatbots; their docstrings are the descriptions in OpenAPI."""

from collections.abc import Sequence
from functools import partial

from fastapi.responses import Response, StreamingResponse
from starlette.requests import Request

from regard.serve import openapi, responses
from regard.serve.chat_requests import ChatFields, ChatRequest
from regard.serve.chat_service import ChatService, ServedReply
from regard.serve.dispatch import MakeJobs, check_results, client_of, run_jobs, stream_jobs
from regard.serve.errors import RequestError
from regard.serve.handlers import ModelHandlers, json_response, or_422
from regard.serve.limits import read_body
from regard.serve.openai_chat import EVENT_STREAM, Completion, CompletionFields, parse_completion_request
from regard.serve.queue import ChatJob, PendingResponse, QueuedJob
from regard.serve.request_context import current_request
from regard.serve.requests import check_size, parse_request

_FIELDS: dict[str | None, str] = {"history": "messages", "nbest": "n"}
"""Fields of a request of OpenAI, by the names that they have in our own form."""


class ChatHandlers(ModelHandlers):
    """Handlers of `/chat` and of chat completions in the form of OpenAI."""

    async def chat(self, request: Request) -> Response:
        """Reply to the turns of a dialogue, or of several: by beam search or sampling, with n-best lists.

        The server keeps nothing between requests: each one has the whole history.
        """
        asked = or_422(partial(parse_request, ChatRequest, await read_body(request, self.limits), self.limits))
        service, make_jobs = self._jobs(asked)
        if asked.stream:
            events = stream_jobs(service, make_jobs, self.limits.seconds, client_of(request))
            return StreamingResponse(events, media_type=openapi.NDJSON)
        results = await run_jobs(request, service, make_jobs, self.limits.seconds)
        check_results(results)
        current_request().tokens = sum(len(reply.tokens) for reply in results if isinstance(reply, ServedReply))
        return json_response(responses.predictions_response(service.name, results, "replies"))

    async def complete(self, request: Request) -> Response:
        """Reply to messages in the form of OpenAI's chat completions.

        Messages of the roles `system` and `developer` are ignored: the models have learned to reply, not to follow
        instructions. Messages of one speaker that follow each other are one turn. Refused are tools, images, penalties
        and other fields that would change a reply as this server cannot.
        """
        body = await read_body(request, self.limits)
        asked = or_422(partial(parse_completion_request, body))
        service, make_jobs = self._completion_jobs(asked)
        completion = Completion(asked, service.name, current_request())
        if asked.stream:
            encode = completion.encode_event
            events = stream_jobs(service, make_jobs, self.limits.seconds, client_of(request), encode)
            return StreamingResponse(events, media_type=EVENT_STREAM, headers={"Cache-Control": "no-cache"})
        results = await run_jobs(request, service, make_jobs, self.limits.seconds)
        check_results(results)
        response = completion.whole(results[0])
        current_request().tokens = response["usage"]["completion_tokens"]
        return json_response(response)

    def _completion_jobs(self, asked: CompletionFields) -> tuple[ChatService, MakeJobs]:
        """Return model and job of a request of OpenAI; name the fields in errors as it does."""
        try:
            own = or_422(partial(asked.own_request, self.limits))
            or_422(partial(check_size, own, self.limits))
            return self._jobs(own)
        except RequestError as error:
            error.field = _FIELDS.get(error.field, error.field)
            raise

    def _jobs(self, asked: ChatFields) -> tuple[ChatService, MakeJobs]:
        """Return the model that a request names, and its jobs."""
        service = self.find_service(asked.model, "chat")
        assert isinstance(service, ChatService), "only these chat"
        chatbot = service.chatbot
        self.note(asked, service, {chatbot.history_field.tokenizer})
        options = or_422(partial(asked.options, chatbot, self.limits))
        search = options if chatbot.reverse is None else options.with_candidates()

        def make_jobs(response: PendingResponse) -> Sequence[QueuedJob]:
            return [
                ChatJob(response, index, history, options, search, chatbot.longest, asked.attention)
                for index, history in enumerate(asked.histories)
            ]

        return service, make_jobs
