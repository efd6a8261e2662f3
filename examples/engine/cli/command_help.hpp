// The texts at the end of --help, of the program and of each command: examples, and what its options have in common.
#pragma once

namespace imbrex::engine {

inline constexpr const char* program_help =
    R"(Examples:
  imbrex generate examples/tales/model "It was the first day of spring."
  imbrex chat ~/models/Qwen2.5-0.5B-Instruct --weights int8
  imbrex batch model.gguf --input requests.jsonl --output results.jsonl
  imbrex serve model.gguf --port 8080
  imbrex bench --random qwen2.5-0.5b --weights int8 --requests 1,8
  imbrex info model.gguf
  imbrex quantize model-f16.gguf model-int8.gguf --weights int8
  imbrex tokenize model.gguf "Once upon a time"
  imbrex perplexity model.gguf --file text.txt --weights int8

A model is a Hugging Face folder (config.json, *.safetensors, tokenizer.json), a .gguf file, or a llama2.c .bin file
beside its tokenizer. Supported: Llama, Mistral, SmolLM, Qwen2 to 3, Gemma, Phi-3 and 4,
Granite, OLMo, StableLM.
"imbrex <command> --help" explains a command. Exit codes: 0 done, 1 error, 2 wrong usage, 130 stopped by Ctrl-C.)";

inline constexpr const char* chat_help =
    R"(Examples:
  imbrex chat model.gguf
  imbrex chat ~/models/Llama-3.1-8B-Instruct --system "Answer in rhymes." --temperature 0.6
  imbrex chat gpt-oss-20b.gguf --set reasoning_effort=low --reasoning hide

/reset clears the conversation, /help lists all commands. Ctrl-C stops an answer, Ctrl-D ends the program.
The model's own chat template is used; --template names another, and --set sets its variables (--set enable_thinking=false).
Without a chat template (--template none, or a model without one) the model continues the input.)";

inline constexpr const char* generate_help =
    R"(Examples:
  imbrex generate model.gguf "Once upon a time" --max-tokens 100
  imbrex generate model.gguf --file prompt.txt --temperature 0 --stop "\n\n"
  echo "The capital of France is" | imbrex generate model.gguf --logprobs 3

Without a prompt and --file the prompt is read from the standard input. With an empty prompt ("") the model starts a text. In --stop,
\n, \t and \\ stand for a line break, a tab and a backslash. Put "--" before a prompt that begins with a dash.)";

inline constexpr const char* batch_help =
    R"(Examples:
  imbrex batch model.gguf --input requests.jsonl --output results.jsonl
  echo '{"prompt": "Once", "id": "a", "max_tokens": 20}' | imbrex batch model.gguf

Each input line is an object with "prompt" (a text or token ids) or "messages" ([{"role": "user", "content": "..."}, ...], with "tools" and
"chat_template_kwargs" if the chat template of the model has them). Optional: "id", "max_tokens",
"temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias"
({"<token>": number}), "seed", "stop", "logprobs", "priority", "ignore_eos", "response_format" ({"type": "json_schema", "json_schema":
{"schema": {...}}} or {"type": "json_object"}). Command-line options are the defaults; a line without a seed gets
--seed plus its index in the file.
Each output line has "id", "text", "finish" (end, stop or length), "prompt_tokens" and "tokens", in the order of the input. The
answer to "messages" has its reasoning apart, in "reasoning_content", and the calls of GPT-OSS in "tool_calls". An invalid line
gets "error" and does not stop the others; the exit code is then 1.)";

inline constexpr const char* serve_help =
    R"(Examples:
  imbrex serve model.gguf
  imbrex serve ~/models/Qwen3-0.6B --host 0.0.0.0 --port 8000 --api-key "$KEY" --sequences 32
  imbrex serve --random qwen2.5-0.5b --device cuda
  curl http://127.0.0.1:8080/v1/chat/completions -d '{"messages": [{"role": "user", "content": "Hi!"}]}'

The API is OpenAI's: chat completions, completions, models; also tokenize, detokenize, health and metrics. The text options
are defaults of requests. Keys are also read from the environment variable IMBREX_API_KEY, one or several with commas.
SIGTERM or Ctrl-C ends the server when its requests are done, at most --drain-time seconds later; a second one ends it at
once.)";

inline constexpr const char* bench_help =
    R"(Examples:
  imbrex bench --random qwen2.5-0.5b --weights int8
  imbrex bench --random tiny --requests 1,4,16 --input 64 --output 64
  imbrex bench --random llama-3.1-8b --random-type q4_K_M
  imbrex bench model.gguf --requests 32 --batch-tokens 1024 --stats
  imbrex bench --random llama-3.1-8b --prefix-cache --cache-host 20G --input 8192 --shared 4000 --requests 200
  imbrex bench model.gguf --trace trace.jsonl --step-costs steps.jsonl

Random weights need no download: llama-3.1-8b (16 GB), qwen2.5-0.5b (1 GB), qwen3-0.6b (1.2 GB), gemma-3-1b (2 GB),
smollm2-135m (0.3 GB), gpt-oss-20b (14 GB), qwen3-30b-a3b (61 GB; 17 GB with --random-type q4_K), tiny. Each number of
--requests is a row. Prompt tok/s: all tokens of steps with prefill, over the time of these steps. Decode tok/s: tokens of steps that only decode. All tok/s: generated tokens over the time of the row.)";

inline constexpr const char* tokenize_help =
    R"(Examples:
  imbrex tokenize model.gguf "Once upon a time"
  imbrex tokenize model.gguf "<|im_start|>user" --special --ids
  imbrex tokenize model.gguf --messages conversation.json --set enable_thinking=false

Prints a line for each token: its id and its text. With --messages, a file with an array of messages or {"messages": [...],
"tools": [...]}, the tokens of a conversation by the chat template.)";

inline constexpr const char* perplexity_help =
    R"(Examples:
  imbrex perplexity model.gguf --file text.txt
  imbrex perplexity model.gguf --file text.txt --weights int8 --window 1024

Prints exp of the mean of -log p(token) over the second half of each window of the text, as llama.cpp does. Lower is better; compare
formats of weights with the same text, window and tokenizer.)";

inline constexpr const char* info_help =
    R"(Examples:
  imbrex info model.gguf
  imbrex info ~/models/Qwen3-0.6B --tensors)";

inline constexpr const char* quantize_help =
    R"(Examples:
  imbrex quantize model-f16.gguf model-int8.gguf
  imbrex quantize ~/models/Qwen3-0.6B qwen3-int4 --weights int4

The output is used as it lies on the disk: a start converts nothing, and programs share its memory. A .gguf file becomes a .gguf file
(int8: Q8_0, int4: Q4_0 with Q8_0 for embedding and LM head), a folder a folder with model.gguf instead of safetensors.)";

}  // namespace imbrex::engine
