"""The API of `imbrex serve` by OpenAI's Python package: python3 openai_client.py <imbrex> <model>"""

import json
import sys
import tempfile

try:
    import openai
except ImportError:
    print("skipped: python3 has no package openai")
    sys.exit(77)

from served import TOOL_TEMPLATE, Server, run_tests, soon

OPENING = "It was the first day of spring."
MESSAGES = [{"role": "user", "content": OPENING}]


def client_of(server, key="none"):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


def chat(program, model):
    with Server(program, model, "--name", "tales") as server:
        client = client_of(server)
        assert [one.id for one in client.models.list()] == ["tales"]
        reply = client.chat.completions.create(model="tales", messages=MESSAGES, max_completion_tokens=12, temperature=0,
                                               logprobs=True, top_logprobs=3)
        choice = reply.choices[0]
        assert choice.message.role == "assistant" and choice.finish_reason == "length"
        assert "".join(bytes(token.bytes).decode() for token in choice.logprobs.content) == choice.message.content
        assert all(len(token.top_logprobs) == 3 for token in choice.logprobs.content)
        assert reply.usage.completion_tokens == 12

        events = list(client.chat.completions.create(model="tales", messages=MESSAGES, max_completion_tokens=12, stream=True,
                                                     temperature=0, stream_options={"include_usage": True}))
        assert "".join(event.choices[0].delta.content or "" for event in events[:-1]) == choice.message.content
        assert events[-1].usage.completion_tokens == 12

        several = client.chat.completions.create(model="tales", messages=MESSAGES, max_tokens=8, n=3, seed=1, stop=["."],
                                                 presence_penalty=0.5, frequency_penalty=0.5, logit_bias={"300": -100})
        assert len({choice.index for choice in several.choices}) == 3
        assert all("." not in choice.message.content for choice in several.choices)


def responses(program, model):
    with Server(program, model) as server:
        client = client_of(server)
        reply = client.responses.create(model="model", input=OPENING, max_output_tokens=12, temperature=0)
        assert reply.status == "incomplete" and reply.incomplete_details.reason == "max_output_tokens"
        assert len(reply.output_text) > 10 and reply.usage.output_tokens == 12
        events = list(client.responses.create(model="model", input=[{"role": "user", "content": OPENING}], temperature=0,
                                              max_output_tokens=12, stream=True))
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert events[0].type == "response.created" and events[-1].type == "response.incomplete"
        assert "".join(one.delta for one in events if one.type == "response.output_text.delta") == reply.output_text
        assert events[-1].response.output_text == reply.output_text


def structured(program, model):
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}},
              "required": ["name", "age"], "additionalProperties": False}
    with Server(program, model) as server:
        create = client_of(server).chat.completions.create
        given = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}}
        for seed in range(3):
            reply = create(model="model", messages=MESSAGES, response_format=given, max_tokens=200, seed=seed)
            if reply.choices[0].finish_reason == "length":
                continue
            person = json.loads(reply.choices[0].message.content)
            assert set(person) == {"name", "age"} and isinstance(person["age"], int) and len(person["name"]) <= 8
        given["json_schema"]["schema"] = {"type": "rainbow"}
        try:
            create(model="model", messages=MESSAGES, response_format=given)
            raise AssertionError("an error was expected")
        except openai.BadRequestError as error:
            assert error.param == "response_format" and "rainbow" in str(error), error


def completions(program, model):
    with Server(program, model) as server:
        client = client_of(server)
        name = client.models.list().data[0].id
        reply = client.completions.create(model=name, prompt=OPENING, max_tokens=12, temperature=0, logprobs=2)
        assert "".join(reply.choices[0].logprobs.tokens) == reply.choices[0].text
        stream = client.completions.create(model=name, prompt=OPENING, max_tokens=12, temperature=0, stream=True)
        assert "".join(event.choices[0].text for event in stream) == reply.choices[0].text


def embeddings(program, model):
    with Server(program, model) as server:
        create = client_of(server).embeddings.create
        reply = create(model="model", input=[OPENING, "It was"])  # the client asks for base64
        floats = create(model="model", input=[OPENING, "It was"], encoding_format="float")
        assert len(reply.data) == 2 and reply.usage.prompt_tokens > 2
        for one, other in zip(reply.data, floats.data):
            assert max(abs(a - b) for a, b in zip(one.embedding, other.embedding)) < 1e-6
        last = create(model="model", input=OPENING, dimensions=16, extra_body={"pooling": "last"})
        assert len(last.data[0].embedding) == 16


def tools(program, model):
    schema = {"type": "object", "properties": {"town": {"enum": ["Rome", "Bonn"]}}, "required": ["town"],
              "additionalProperties": False}
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
        template.write(TOOL_TEMPLATE)
        template.flush()
        with Server(program, model, "--template", template.name) as server:
            client = client_of(server)
            function = {"name": "look", "parameters": schema, "strict": True}
            reply = client.chat.completions.create(
                model="model", messages=MESSAGES, tools=[{"type": "function", "function": function}], max_tokens=300,
                tool_choice="required", parallel_tool_calls=False)
            (call,) = reply.choices[0].message.tool_calls
            assert call.function.name == "look" and json.loads(call.function.arguments)["town"] in ("Rome", "Bonn")
            body = dict(model="model", input=OPENING, tools=[{"type": "function", **function}], max_output_tokens=300,
                        tool_choice={"type": "function", "name": "look"}, parallel_tool_calls=False)
            with client.responses.stream(**body) as stream:
                kinds = [event.type for event in stream]
                (item,) = stream.get_final_response().output
            assert "response.function_call_arguments.done" in kinds
            assert item.type == "function_call" and json.loads(item.arguments)["town"] in ("Rome", "Bonn")
            answered = [{"role": "user", "content": OPENING}, item,
                        {"type": "function_call_output", "call_id": item.call_id, "output": "It rains."}]
            reply = client.responses.create(model="model", input=answered, max_output_tokens=5)
            assert reply.output_text and reply.usage.input_tokens_details.cached_tokens >= 0


def errors(program, model):
    def refused(kind, call, param=None):
        try:
            call()
        except kind as error:
            assert error.param == param, error
            return error
        raise AssertionError(f"{kind.__name__} was expected")

    with Server(program, model, "--name", "tales", "--api-key", "secret") as server:
        client = client_of(server, "secret")
        create = client.chat.completions.create
        refused(openai.AuthenticationError, lambda: client_of(server).models.list())
        refused(openai.NotFoundError, lambda: create(model="gpt-4", messages=MESSAGES), "model")
        refused(openai.BadRequestError, lambda: create(model="tales", messages=MESSAGES, temperature=9), "temperature")
        refused(openai.BadRequestError, lambda: create(model="tales", messages=MESSAGES, extra_body={"x": 1}), "x")
        assert create(model="tales", messages=MESSAGES, max_tokens=1, extra_body={"top_k": 1}).choices
    with Server(program, model, "--time-limit", "0.02") as server:
        create = client_of(server).chat.completions.create
        late = dict(model="model", messages=MESSAGES, n=8, extra_body={"ignore_eos": True})
        assert refused(openai.InternalServerError, lambda: create(**late)).status_code == 504


def cancel(program, model):
    """Leaving a stream ends the generation."""
    with Server(program, model) as server:
        stream = client_of(server).chat.completions.create(model="model", messages=MESSAGES, stream=True,
                                                           extra_body={"ignore_eos": True})
        next(stream)
        stream.close()
        assert soon(lambda: server.metric("sequences") == 0)
        assert server.metric('requests_total{outcome="completed"}') == 0


if __name__ == "__main__":
    run_tests([chat, responses, structured, completions, embeddings, tools, errors, cancel])
