"""A Llama of Hugging Face transformers with the attention of Imbrex, beside PyTorch's and FlashAttention-2.

    pip install ./examples/pytorch transformers
    python3 bench/pytorch/llama.py --json pytorch_llama.json
    python3 bench/pytorch/llama.py --parts training --compile              the model by torch.compile
    python3 bench/pytorch/llama.py --device cpu --layers 1 --batch 1 --length 64 --prompt 16 --new-tokens 4 \\
                                   --vocabulary 1000 --rounds 1            a trial without a GPU

The model has the shape of Llama 3.2 1B: hidden size 2048, 16 layers, 32 heads of 64 columns, 8 KV heads, MLP of 8192;
bf16, random weights. Tokens per second of

    training           forward, backward and AdamW: 4 sequences of 4096 tokens
    prefill            the keys, values and last logits of as many tokens
    padded_prefill     the same with padding on the left: lengths 1, 3/4, 1/2 and 1/4 of 4096; padding does not count
    generation         128 greedy tokens each after 8 prompts of 1024, with a growing KV cache

One model switches its attention; the contestants alternate; medians of the wall time. PyTorch's attention (sdpa) takes part
with the kernel that it chooses, and where it can with those of cuDNN and FlashAttention-2. Before timing, losses and logits are compared with PyTorch's. A result that differs is printed as
WRONG and makes the exit status nonzero.
"""

import argparse
import contextlib
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "kernels"))
from attention_turns import Report, clocks, device_or_exit, matching, relative_difference, write_json  # noqa: E402

LARGEST_DIFFERENCE = 0.05  # of logits of 16 layers in bf16
BACKENDS = {"sdpa, cuDNN": "CUDNN_ATTENTION", "sdpa, FlashAttention-2": "FLASH_ATTENTION"}


class Part:
    """Something to time. `prepare` is not timed; `run` returns what is compared with that of PyTorch's attention."""

    every_backend = False  # whether cuDNN and FlashAttention-2 compute it: without a mask tensor

    def __init__(self, bench, tokens, title):
        self.model, self.torch, self.tokens, self.title = bench.model, bench.torch, tokens, title

    def prepare(self):
        pass


class Training(Part):
    every_backend = True

    def __init__(self, bench, batch, length):
        super().__init__(bench, batch * length, f"training, {batch} x {length}")
        self._ids = bench.random_ids(batch, length)
        # A rate of 0 keeps the weights, so that all steps compute the same.
        self._optimizer = self.torch.optim.AdamW(self.model.parameters(), lr=0.0, fused=True)

    def run(self):
        loss = self.model(self._ids, labels=self._ids, use_cache=False).loss
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        return loss.detach()


class Prefill(Part):
    def __init__(self, bench, batch, length, lengths=None):
        tokens = batch * length if lengths is None else sum(lengths)
        super().__init__(bench, tokens, f"prefill, {batch} x {length}" + (", padded" if lengths is not None else ""))
        self._ids, self._mask = bench.random_ids(batch, length), None
        self.every_backend = lengths is None
        if lengths is not None:
            self._mask = self.torch.zeros_like(self._ids)
            for row, own in enumerate(lengths):
                self._mask[row, -own:] = 1

    def run(self):
        with self.torch.no_grad():
            return self.model(self._ids, attention_mask=self._mask, use_cache=True, logits_to_keep=1).logits


class Generation(Part):
    def __init__(self, bench, batch, prompt, new_tokens):
        super().__init__(bench, batch * new_tokens, f"generation, {batch} x {prompt} + {new_tokens}")
        self._ids, self._new_tokens = bench.random_ids(batch, prompt), new_tokens

    def prepare(self):
        with self.torch.no_grad():
            self._last = self.model(self._ids, use_cache=True, logits_to_keep=1)

    def run(self):
        last, first = self._last, None
        with self.torch.no_grad():
            for _ in range(self._new_tokens):
                token = last.logits[:, -1:].argmax(-1)
                last = self.model(token, past_key_values=last.past_key_values, use_cache=True)
                first = last.logits if first is None else first
        return first  # later ones depend on which of two almost equal logits was larger


class Bench:
    def __init__(self, torch, arguments):
        from transformers import LlamaConfig, LlamaForCausalLM

        import imbrex_torch.transformers

        imbrex_torch.transformers.register()
        torch.manual_seed(1)
        self.torch, self.device, self.faults = torch, torch.device(arguments.device), 0
        names = ["sdpa", "imbrex", *(BACKENDS if arguments.device == "cuda" else ())]
        self.names = matching(names, arguments.attention, "--attention")
        config = LlamaConfig(
            vocab_size=arguments.vocabulary, hidden_size=2048, intermediate_size=8192, num_attention_heads=32,
            num_hidden_layers=arguments.layers, num_key_value_heads=8, head_dim=64, max_position_embeddings=131072,
            rope_parameters={"rope_type": "default", "rope_theta": 500000.0}, tie_word_embeddings=True)
        with self.device:
            self._model = LlamaForCausalLM(config).to(torch.bfloat16)
        self.model = torch.compile(self._model) if arguments.compile else self._model

    def random_ids(self, batch, length):
        return self.torch.randint(0, self._model.config.vocab_size, (batch, length), device=self.device)

    @contextlib.contextmanager
    def _attention(self, name):
        self._model.set_attn_implementation(name.split(",")[0])
        if name not in BACKENDS:
            yield
            return
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(getattr(SDPBackend, BACKENDS[name])):
            yield

    def measure(self, part, rounds):
        """Median seconds of each contestant."""
        names = [name for name in self.names if part.every_backend or name not in BACKENDS]
        self._check(part, names)
        times = {name: [] for name in names}
        for number in range(rounds + 1):
            for name in names if number % 2 == 0 else reversed(names):
                with self._attention(name):
                    part.prepare()
                    self._synchronize()
                    begin = time.perf_counter()
                    part.run()
                    self._synchronize()
                    times[name].append(time.perf_counter() - begin)
        return {name: statistics.median(taken[1:]) for name, taken in times.items()}

    def _check(self, part, names):
        results = {}
        for name in dict.fromkeys(["sdpa", *names]):
            with self._attention(name):
                for _ in range(2):  # the first run compiles
                    part.prepare()
                    results[name] = part.run()
            difference = relative_difference(results[name].float(), results["sdpa"].float())
            if not difference <= LARGEST_DIFFERENCE:
                self.faults += 1
                print(f"WRONG: {part.title}, {name}: relative difference {difference:.3g} to sdpa")

    def _synchronize(self):
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()


def parts_of(bench, arguments):
    """The chosen parts, each made when it is its turn."""
    batch, length = arguments.batch, arguments.length
    lengths = [max(1, length * (4 - row % 4) // 4) for row in range(batch)]
    makers = {
        "training": lambda: Training(bench, batch, length),
        "prefill": lambda: Prefill(bench, batch, length),
        "padded_prefill": lambda: Prefill(bench, batch, length, lengths),
        "generation": lambda: Generation(bench, 2 * batch, arguments.prompt, arguments.new_tokens),
    }
    for name in matching(list(makers), arguments.parts, "--parts"):
        yield makers[name]()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="*", help="patterns of parts, separated by commas")
    parser.add_argument("--attention", default="*", help="patterns of attn_implementation, separated by commas")
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    parser.add_argument("--device", default="cuda")
    for name, usual in (("layers", 16), ("vocabulary", 128256), ("batch", 4), ("length", 4096), ("prompt", 1024),
                        ("new-tokens", 128), ("rounds", 9)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    if arguments.device == "cpu":
        import torch
    else:
        torch = device_or_exit()
    import transformers

    bench = Bench(torch, arguments)
    compiled = ", torch.compile" if arguments.compile else ""
    report = Report(f"Llama, {arguments.layers} layers, bf16{compiled}", "tokens/s")
    report.notes.append(f"transformers {transformers.__version__}, PyTorch {torch.__version__}")
    for part in parts_of(bench, arguments):
        taken = bench.measure(part, arguments.rounds)
        report.add(part.title, {name: part.tokens / seconds for name, seconds in taken.items()})
        report.notes.append(f"{part.title}: " + ", ".join(f"{name} {1e3 * s:.2f} ms" for name, s in taken.items()))
        print(report.notes[-1], flush=True)
    report.notes.append(f"clocks after: {clocks()}")
    print(report.text())
    if arguments.json:
        write_json([report], arguments.json)
    return 1 if bench.faults else 0


if __name__ == "__main__":
    sys.exit(main())
