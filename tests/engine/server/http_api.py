"""The API of `imbrex serve` over HTTP, with the standard library: python3 http_api.py <imbrex> <model>"""

import base64
import http.client
import json
import socket
import struct
import tempfile
import threading

from served import TOOL_TEMPLATE, Server, run_tests, soon

OPENING = "It was the first day of spring."


def refused(server, path, body, status, param, words):
    """The request is refused with this status, and the message names the field."""
    got, _, reply = server.request("POST", path, body)
    error = reply["error"]
    assert got == status, (got, reply)
    assert error["param"] == param and words in error["message"], error
    assert error["type"] and "code" in error


def completions(program, model):
    with Server(program, model) as server:
        status, reply = server.post("/v1/completions", prompt=OPENING, max_tokens=12, temperature=0, logprobs=2)
        assert status == 200 and reply["object"] == "text_completion"
        choice = reply["choices"][0]
        assert choice["finish_reason"] == "length"
        assert "".join(choice["logprobs"]["tokens"]) == choice["text"]
        assert all(value <= 0 for value in choice["logprobs"]["token_logprobs"])
        assert all(len(top) == 2 for top in choice["logprobs"]["top_logprobs"])
        assert reply["usage"]["completion_tokens"] == 12
        assert reply["usage"]["total_tokens"] == reply["usage"]["prompt_tokens"] + 12
        text = choice["text"]

        # The same text as a stream, from tokens, and with a stop string.
        events = list(server.stream("/v1/completions", prompt=OPENING, max_tokens=12, temperature=0))
        assert events[-1] == "[DONE]"
        assert "".join(event["choices"][0]["text"] for event in events[:-1]) == text
        _, tokens = server.post("/tokenize", prompt=OPENING)
        _, reply = server.post("/v1/completions", prompt=tokens["tokens"], max_tokens=12, temperature=0)
        assert reply["choices"][0]["text"] == text
        _, reply = server.post("/v1/completions", prompt=OPENING, max_tokens=12, temperature=0, stop=[text[5:8]])
        assert reply["choices"][0]["text"] == text[:5] and reply["choices"][0]["finish_reason"] == "stop"

        # Several prompts and choices; the seed decides.
        body = dict(prompt=[OPENING, "It was"], n=2, max_tokens=8, seed=4, echo=True)
        _, first = server.post("/v1/completions", **body)
        _, second = server.post("/v1/completions", **body)
        texts = [choice["text"] for choice in first["choices"]]
        assert texts == [choice["text"] for choice in second["choices"]] and len(texts) == 4
        assert [choice["index"] for choice in first["choices"]] == [0, 1, 2, 3]
        assert texts[0].startswith(OPENING) and texts[0] != texts[1]
        _, other = server.post("/v1/completions", **{**body, "seed": 5, "n": 1})
        assert other["choices"][0]["text"] == texts[1]  # choice i has seed + i

        # A bias forbids a token.
        first_token = server.post("/tokenize", content=text)[1]["tokens"][0]
        _, reply = server.post("/v1/completions", prompt=OPENING, max_tokens=1, temperature=0,
                               logit_bias={str(first_token): -100})
        assert not text.startswith(reply["choices"][0]["text"])


def chat(program, model):
    with Server(program, model, "--name", "tales") as server:
        messages = [{"role": "user", "content": [{"type": "text", "text": OPENING}]}]
        _, reply = server.post("/v1/chat/completions", model="tales", messages=messages, max_completion_tokens=10,
                               temperature=0, logprobs=True, top_logprobs=2)
        choice = reply["choices"][0]
        assert reply["object"] == "chat.completion" and reply["model"] == "tales"
        assert choice["message"]["role"] == "assistant" and choice["finish_reason"] == "length"
        assert "".join(token["token"] for token in choice["logprobs"]["content"]) == choice["message"]["content"]
        assert all(len(token["top_logprobs"]) == 2 for token in choice["logprobs"]["content"])

        events = list(server.stream("/v1/chat/completions", messages=messages, max_tokens=10, temperature=0, n=2,
                                    stream_options={"include_usage": True}))
        assert events.pop() == "[DONE]"
        last = events.pop()
        assert last["choices"] == [] and last["usage"]["completion_tokens"] == 20
        for index in range(2):
            mine = [event["choices"][0] for event in events if event["choices"][0]["index"] == index]
            assert mine[0]["delta"]["role"] == "assistant"
            assert "".join(one["delta"].get("content", "") for one in mine) == choice["message"]["content"]
            assert mine[-1]["finish_reason"] == "length" and mine[-1]["delta"] == {}


def embeddings(program, model):
    with Server(program, model, "--pooling", "last") as server:
        def embed(**body):
            status, reply = server.post("/v1/embeddings", **body)
            assert status == 200 and reply["object"] == "list", reply
            assert [one["index"] for one in reply["data"]] == list(range(len(reply["data"])))
            return [one["embedding"] for one in reply["data"]], reply["usage"]

        def near(one, other):
            return len(one) == len(other) and all(abs(a - b) < 1e-5 for a, b in zip(one, other))

        (whole,), usage = embed(input=OPENING)
        assert abs(sum(value * value for value in whole) - 1) < 1e-5
        tokens = server.post("/tokenize", prompt=OPENING)[1]["tokens"]
        assert usage == {"prompt_tokens": len(tokens), "total_tokens": len(tokens)}
        several, _ = embed(input=[OPENING, "It was", tokens])
        assert near(several[0], whole) and near(several[2], whole) and not near(several[1], whole)
        assert near(embed(input=tokens)[0][0], whole) and near(embed(input=tokens, pooling="last")[0][0], whole)

        # The mean is not that of a part, whatever is cached.
        (mean,), _ = embed(input=OPENING, pooling="mean")
        assert not near(mean, whole) and near(embed(input=OPENING, pooling="mean")[0][0], mean)
        (first,), _ = embed(input=tokens[:1], pooling="mean")
        assert near(first, embed(input=tokens[:1], pooling="last")[0][0])

        # The first dimensions, of length 1 again; and base64.
        (short,), _ = embed(input=OPENING, dimensions=8)
        length = sum(value * value for value in whole[:8]) ** 0.5
        assert near(short, [value / length for value in whole[:8]])
        (coded,), _ = embed(input=OPENING, encoding_format="base64")
        assert near(struct.unpack(f"<{len(whole)}f", base64.b64decode(coded)), whole)

        path, most = "/v1/embeddings", len(whole)
        refused(server, path, {}, 400, "input", "is needed")
        refused(server, path, {"input": {}}, 400, "input", "a string")
        refused(server, path, {"input": "It", "dimensions": most + 1}, 400, "dimensions", f"from 1 to {most}")
        refused(server, path, {"input": "It", "pooling": "max"}, 400, "pooling", '"mean", "last"')
        refused(server, path, {"input": "It", "encoding_format": "int8"}, 400, "encoding_format", '"float", "base64"')
        refused(server, path, {"input": ["It"] * 321}, 400, "input", "321 prompts")
        assert server.metric("generated_tokens_total") == 0


def cached_tokens(program, model):
    """What the prefix cache had of a prompt is in the usage, with and without a stream."""
    with Server(program, model) as server:
        def cached(path, stream=False, **body):
            if not stream:
                return server.post(path, max_tokens=2, **body)[1]["usage"]["prompt_tokens_details"]["cached_tokens"]
            events = list(server.stream(path, max_tokens=2, stream_options={"include_usage": True}, **body))
            return events[-2]["usage"]["prompt_tokens_details"]["cached_tokens"]

        prompt = list(range(300, 340))
        assert cached("/v1/completions", prompt=prompt) == 0
        assert cached("/v1/completions", prompt=prompt) == 32
        assert cached("/v1/completions", prompt=[prompt, prompt], n=2, stream=True) == 64
        chat = {"messages": [{"role": "user", "content": OPENING * 2}]}
        assert cached("/v1/chat/completions", **chat) == 0
        assert cached("/v1/chat/completions", stream=True, **chat) >= 16
        _, reply = server.post("/v1/responses", input=OPENING * 2, max_output_tokens=2)
        assert reply["usage"]["input_tokens_details"]["cached_tokens"] >= 16


def tool(name, **more):
    properties = {"town": {"enum": ["Rome", "Bonn"]}, "days": {"type": "integer", "minimum": 0, "maximum": 9}}
    parameters = {"type": "object", "properties": properties, "required": ["town", "days"]}
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


def tools(program, model):
    """Required, named, strict and single calls, which even this small model writes."""
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
        template.write(TOOL_TEMPLATE)
        template.flush()
        with Server(program, model, "--template", template.name) as server:
            path = "/v1/chat/completions"
            body = dict(messages=[{"role": "user", "content": OPENING}], tools=[tool("look"), tool("walk")], max_tokens=400)

            def calls_of(message):
                for call in message["tool_calls"]:
                    arguments = json.loads(call["function"]["arguments"])
                    assert arguments["town"] in ("Rome", "Bonn") and arguments["days"] in range(10), arguments
                return [call["function"]["name"] for call in message["tool_calls"]]

            single = dict(parallel_tool_calls=False)
            for seed in range(3):
                choice = server.post(path, **body, tool_choice="required", seed=seed, **single)[1]["choices"][0]
                assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
                names = calls_of(choice["message"])
                assert len(names) == 1 and names[0] in ("look", "walk")
            named = {"type": "function", "function": {"name": "walk"}}
            message = server.post(path, **body, tool_choice=named, **single)[1]["choices"][0]["message"]
            assert calls_of(message) == ["walk"]

            # As a stream, and with the answer of the tool.
            events = list(server.stream(path, **body, tool_choice="required", seed=1, **single))
            deltas = [event["choices"][0]["delta"] for event in events[:-1]]
            calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
            assert len(calls) == 1 and calls[0]["index"] == 0 and calls_of({"tool_calls": calls})
            answer = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "It rains."}
            after = {**body, "messages": body["messages"] + [message, answer], "max_tokens": 5}
            assert server.post(path, **after)[0] == 200

            # A schema that is not supported is an error if it is strict.
            odd = tool("odd")
            odd["function"]["parameters"] = {"type": "object", "properties": {"x": {"not": {}}}}
            odd["function"]["strict"] = True
            refused(server, path, {**body, "tools": [odd]}, 400, "tools", "#/properties/x: not")
            refused(server, path, {**body, "tool_choice": "always"}, 400, "tool_choice", '"required"')
            refused(server, path, {**body, "tool_choice": {"type": "function", "function": {"name": "x"}}}, 400,
                    "tool_choice", 'the name of one of the "tools"')
            refused(server, path, {**body, "tools": [], "tool_choice": "required"}, 400, "tool_choice", 'needs "tools"')
            refused(server, path, {**body, "tools": [{"type": "function", "function": {}}]}, 400,
                    "tools[0].function.name", "missing")
            refused(server, path, {**body, "tool_choice": "required", "response_format": {"type": "json_object"}}, 400,
                    "response_format", "has no format")
            responses(server, calls_of)


def responses(server, calls_of):
    """The same through the Responses API."""
    function = {"type": "function", **tool("look")["function"]}
    body = dict(input=OPENING, tools=[function], tool_choice="required", parallel_tool_calls=False,
                max_output_tokens=400, seed=1)
    _, reply = server.post("/v1/responses", **body)
    assert reply["status"] == "completed" and reply["tools"] == [function] and reply["tool_choice"] == "required"
    (call,) = reply["output"]
    assert call["type"] == "function_call" and call["name"] == "look"
    assert calls_of({"tool_calls": [{"function": call}]}) == ["look"]
    events = list(server.stream("/v1/responses", **body))
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds == ["created", "in_progress", "output_item.added", "function_call_arguments.delta",
                     "function_call_arguments.done", "output_item.done", "completed"]
    assert events[3]["delta"] == events[4]["arguments"] == events[-1]["response"]["output"][0]["arguments"]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "It rains."}
    history = [{"role": "user", "content": OPENING}, call, output]
    status, reply = server.post("/v1/responses", input=history, tools=[function], max_output_tokens=5)
    assert status == 200 and reply["output"][0]["type"] == "message"
    refused(server, "/v1/responses", {"input": [{"type": "function_call", "call_id": "x"}]}, 400, "input[0].name", "missing")
    refused(server, "/v1/responses", {"input": [{"type": "picture"}]}, 400, "input[0].type", '"function_call_output"')


def errors(program, model):
    with Server(program, model, "--name", "tales", "--max-body", "20k", "--max-prompt", "100") as server:
        chat, text = "/v1/chat/completions", "/v1/completions"
        hello = [{"role": "user", "content": "Hello"}]
        refused(server, text, {"prompt": "It", "temprature": 1}, 400, "temprature", "is not a field")
        refused(server, text, {"prompt": "It", "temperature": "hot"}, 400, "temperature", '"hot"; a number from 0 to 2')
        refused(server, text, {"prompt": "It", "temperature": 3}, 400, "temperature", "3; a number from 0 to 2")
        refused(server, text, {"prompt": "It", "max_tokens": 0}, 400, "max_tokens", "0; an integer from 1")
        refused(server, text, {"prompt": "It", "n": 1000}, 400, "n", "1000; an integer from 1 to 64")
        refused(server, text, {"prompt": ["It"] * 256, "n": 64}, 400, "prompt", "16384 sequences")
        refused(server, text, {"prompt": {}}, 400, "prompt", "a string")
        refused(server, text, {"prompt": [[1, -5]]}, 400, "prompt", "a string")
        refused(server, text, {"prompt": [100000]}, 400, "prompt", "token 100000; the model has 768")
        refused(server, text, {"prompt": [1] * 101}, 400, "prompt", "101 tokens; this server allows 100")
        refused(server, text, {"prompt": [1] * 600}, 400, "prompt", "600 tokens")
        refused(server, text, {"prompt": "It", "stop": [""]}, 400, "stop", "empty")
        refused(server, text, {"prompt": "It", "logit_bias": {"x": 1}}, 400, "logit_bias", "below 768")
        refused(server, text, {"prompt": "It", "logprobs": 21}, 400, "logprobs", "from 0 to 20")
        refused(server, text, {"prompt": "It", "suffix": "."}, 400, "suffix", "fills no gaps")
        refused(server, text, {"prompt": "It", "stream_options": {}}, 400, "stream_options", '"stream": true')
        refused(server, text, {"prompt": "It", "model": "gpt-4"}, 404, "model", '"tales"')
        refused(server, chat, {}, 400, "messages", "at least one message")
        refused(server, chat, {"messages": [{"content": "Hi"}]}, 400, "messages[0].role", "missing")
        refused(server, chat, {"messages": [{"role": "chief", "content": "Hi"}]}, 400, "messages[0].role", '"user"')
        refused(server, chat, {"messages": [{"role": "user"}]}, 400, "messages[0].content", "a text is needed")
        refused(server, chat, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, 400,
                "messages[0].content[0].type", '"text"')
        refused(server, chat, {"messages": hello, "tools": [{"type": "function", "function": {"name": "f"}}]}, 400,
                "tools", "no chat template")
        refused(server, chat, {"messages": hello, "top_logprobs": 2}, 400, "top_logprobs", '"logprobs": true')
        refused(server, "/detokenize", {"tokens": [768]}, 400, "tokens", "from 0 to 767")
        refused(server, text, "{", 400, None, "not JSON")
        refused(server, text, "[1]", 400, None, "a request is an object")
        refused(server, text, '{"prompt": "It\xff"}'.encode("latin-1"), 400, None, "not JSON")
        refused(server, text, "[" * 100, 400, None, "nests deeper than 64")
        refused(server, text, {"prompt": "x" * 30000}, 413, None, "20480 bytes")
        status, headers, reply = server.request("GET", "/v1/completions")
        assert status == 405 and headers["Allow"] == "POST, OPTIONS" and "GET" in reply["error"]["message"]
        assert server.request("GET", "/v2")[0] == 404
        assert server.request("BREW", "/v2")[0] == 400
        assert server.request("HEAD", "/v1/models")[0] == 200


def keys_and_origins(program, model):
    with Server(program, model, "--api-key", "one", "--cors", "https://page.example",
                environment={"IMBREX_API_KEY": "two,three"}) as server:
        assert server.request("GET", "/health")[0] == 200
        for header in ({}, {"Authorization": "Bearer four"}, {"Authorization": "one"}, {"Authorization": "Bearer "}):
            status, headers, reply = server.request("GET", "/v1/models", headers=header)
            assert status == 401 and headers["WWW-Authenticate"] == "Bearer"
            assert reply["error"]["code"] == "invalid_api_key"
            assert headers["Access-Control-Allow-Origin"] == "https://page.example"
        for key in ("one", "two", "three"):
            assert server.request("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"})[0] == 200
        status, headers, _ = server.request("OPTIONS", "/v1/completions")
        assert status == 204 and headers["Access-Control-Allow-Methods"] == "POST, OPTIONS"
    with Server(program, model) as server:
        assert "Access-Control-Allow-Origin" not in server.request("GET", "/v1/models")[1]


def deep_arguments(program, model):
    """Arguments of a call are a text of JSON: one that nests deeper than the stack allows stays a text."""
    deep = "[" * 200_000 + "]" * 200_000
    messages = [{"role": "user", "content": "Hi"},
                {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": deep}}]}]
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
        template.write("{% for m in messages %}{{ m.content or m.tool_calls[0].function.arguments | length }}{% endfor %}")
        template.flush()
        with Server(program, model, "--template", template.name) as server:
            status, reply = server.post("/v1/chat/completions", messages=messages, max_tokens=1)
            assert status == 200, reply


LONG = {"prompt": OPENING, "max_tokens": 480, "ignore_eos": True}


def disconnects(program, model):
    """A client that goes frees its sequence: in a stream, while it waits for an answer, and in the queue."""
    with Server(program, model, "--sequences", "1", "--queue", "3", "--context", "512") as server:
        def open_request(**body):
            data = json.dumps({**LONG, **body}).encode()
            connection = socket.create_connection((server.host, server.port))
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                               b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
            return connection

        def sequences(count):
            return soon(lambda: server.metric("sequences") == count)

        for body in ({"stream": True}, {}):
            running = open_request(**body)
            if body:
                assert running.recv(1000).startswith(b"HTTP/1.1 200")
            assert sequences(1)
            running.close()
            assert sequences(0)
        running, waiting = open_request(n=1, stream=True), open_request()
        assert sequences(2)
        waiting.close()
        assert sequences(1)
        running.close()
        assert sequences(0)
        assert server.metric('requests_total{outcome="cancelled"}') == 4
        assert server.metric('requests_total{outcome="completed"}') == 0


def limits(program, model):
    with Server(program, model, "--sequences", "1", "--queue", "1") as server:
        streams = [server.stream("/v1/completions", **LONG), None]
        next(streams[0])
        thread = threading.Thread(target=lambda: server.post("/v1/completions", **LONG))
        thread.start()
        assert soon(lambda: server.metric("sequences") == 2)
        status, headers, reply = server.request("POST", "/v1/completions", {"prompt": "It"})
        assert status == 429 and headers["Retry-After"] and reply["error"]["type"] == "rate_limit_error"
        streams[0].close()
        thread.join()
        assert server.post("/v1/completions", prompt="It")[0] == 200
    with Server(program, model, "--time-limit", "0.05") as server:
        status, reply = server.post("/v1/completions", **{**LONG, "n": 4})
        assert status == 504 and "0.05 seconds" in reply["error"]["message"]
        events = list(server.stream("/v1/completions", **{**LONG, "n": 4}))
        assert "choices" in events[0] and events[-1]["error"]["type"] == "timeout_error"


def drain(program, model):
    with Server(program, model) as server:
        stream = server.stream("/v1/completions", **LONG)
        next(stream)
        server.terminate()
        assert soon(lambda: server.request("GET", "/health")[0] == 503)
        status, headers, _ = server.request("POST", "/v1/completions", {"prompt": "It"})
        assert status == 503 and headers["Retry-After"]
        events = list(stream)
        assert events[-1] == "[DONE]" and events[-2]["choices"][0]["finish_reason"] == "length"
        assert "were ended" not in server.wait()
    with Server(program, model, "--drain-time", "0.01") as server:
        stream = server.stream("/v1/completions", **{**LONG, "n": 8})
        next(stream)
        server.terminate()
        assert "shutting down" in list(stream)[-1]["error"]["message"]
        assert "were ended" in server.wait()


def many_clients(program, model):
    """Keep-alive, and texts that do not depend on who else is served."""
    with Server(program, model, "--sequences", "4") as server:
        def text(connection, seed):
            body = json.dumps({"prompt": OPENING, "max_tokens": 10, "seed": seed})
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            return json.loads(connection.getresponse().read())["choices"][0]["text"]

        single = http.client.HTTPConnection(server.host, server.port)
        expected = [text(single, seed) for seed in range(12)]
        got = [[] for _ in range(4)]

        def client(index):
            connection = http.client.HTTPConnection(server.host, server.port)
            got[index] = [text(connection, seed) for seed in range(12)]

        threads = [threading.Thread(target=client, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(texts == expected for texts in got)


if __name__ == "__main__":
    run_tests([completions, chat, embeddings, cached_tokens, tools,
               errors, deep_arguments, keys_and_origins, disconnects, limits, drain, many_clients])
