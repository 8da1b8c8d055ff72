"""psring generate, tokenize and quantize: a model is trained, continues texts, and is rounded to 8 and 4 bits."""

import json
import struct
import unittest

from generating import MODEL, GenerateTest, text_of

USAGE, DATA = 2, 3


def read_tensors(path):
    """Type, shape and bytes of each tensor."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    return {name: (entry["dtype"], entry["shape"], data[8 + length + entry["data_offsets"][0] : 8 + length + entry["data_offsets"][1]])
            for name, entry in header.items() if name != "__metadata__"}


def write_tensors(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name in sorted(tensors):
        dtype, shape, content = tensors[name]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Generate(GenerateTest):
    def test_a_trained_model_continues_a_text(self):
        model = self.trained(steps=400)
        prompts = ["the cat ", "s", "when it rains, the river"]
        batch = [option for prompt in prompts for option in ("--prompt", prompt)]
        together = self.tokens("--init", model, *batch, "--tokens", 40)
        for prompt, expected in zip(prompts, together):
            alone = ["--init", model, "--prompt", prompt, "--tokens", 40]
            for more in ([], ["--cache", "off"], ["--threads", 2], ["--model", MODEL]):
                self.assertEqual(self.tokens(*alone, *more), [expected])
        self.assertTrue(bytes(together[0]).decode().startswith("sat on the mat"), bytes(together[0]))
        (self.folder / "prompts").write_text("\n".join(prompts) + "\n")
        self.assertEqual(self.tokens("--init", model, "--prompt-file", "prompts", "--tokens", 40), together)
        numbers = ",".join(str(byte) for byte in prompts[0].encode())
        self.assertEqual(self.tokens("--init", model, "--prompt-tokens", numbers, "--tokens", 40), together[:1])

        draws = ["--init", model, "--prompt", "the ", "--tokens", 30, "--temperature", "1.5"]
        self.assertEqual(self.tokens(*draws, "--seed", 3), self.tokens(*draws, "--seed", 3))
        self.assertNotEqual(self.tokens(*draws, "--seed", 3), self.tokens(*draws, "--seed", 4))
        self.assertEqual(self.tokens(*draws, "--top-k", 1), self.tokens(*draws[:6]))

        shown = self.run_program("psring", "generate", "--init", model, "--prompt", "the cat ", "--tokens", 20, "--measure")
        self.assert_done(shown)
        for word in ("the cat ", "prefill", "decode", "KV cache 2 x 2 layers x 32 tokens x 64 x 4 B = 0.03 MiB", "recomputing all",
                     "calculator", "bound"):
            self.assertIn(word, shown.out)

    def test_memory_is_the_calculators(self):
        model = self.trained(steps=1)
        figures = self.generate("--init", model, "--prompt", "abc", "--tokens", 30, "--measure")
        result = self.run_program("psring", "memory", "--json", "--inference", "--parameters", figures["parameters"], "--layers", 2,
                                  "--dim", 64, "--context", 32, "--weight-bits", 32)
        self.assert_done(result)
        calculated = json.loads(result.out)
        self.assertEqual(figures["weight_bytes"], calculated["weights"]["bytes"])  # whole panels: no padding
        self.assertEqual(figures["cache_bytes"], 2 * calculated["KV cache"]["bytes"])  # f32 in place of 16 bits

    def test_quantised_weights(self):
        model = self.trained(steps=200)
        loss = self.generate("--init", model, "--evaluate", "text:corpus.txt")
        self.assertGreater(loss["tokens"], 3000)
        for weights, most, bits in (("int8", 0.005, 8.7), ("int4:group=64", 0.05, 5.4), ("int4:group=32,scheme=affine", 0.05, 6.2)):
            with self.subTest(weights):
                rounded = self.generate("--init", model, "--evaluate", "text:corpus.txt", "--weights", weights)
                self.assertLess(abs(rounded["perplexity"] / loss["perplexity"] - 1), most)
                self.assertLess(rounded["weight_bytes"] * 32 / loss["weight_bytes"], bits + 1)
                self.assert_done(self.run_program("psring", "quantize", "--init", model, "--weights", weights, "--out", "q.safetensors"))
                again = self.generate("--init", "q.safetensors", "--evaluate", "text:corpus.txt")
                self.assertEqual(again, {**rounded, "weights": again["weights"]})
                prompt = ["--prompt", "the cat ", "--tokens", 30]
                self.assertEqual(self.tokens("--init", "q.safetensors", *prompt), self.tokens("--init", model, "--weights", weights, *prompt))
        self.assert_refused(self.run_program("psring", "generate", "--init", "q.safetensors", "--weights", "int8", "--prompt", "a"), USAGE, "already")
        self.assert_refused(self.train("--strategy", "single", "--model", MODEL, "--data", "text:corpus.txt", "--global-batch", 8, "--steps",
                                       1, "--init", "q.safetensors"), DATA, "q.safetensors", "tensor")

    def test_a_published_file_loads_as_it_is(self):
        """GPT-2's safetensors file: names without a prefix, sorted; Conv1D weights [in, out]; masks, and no head. Exports of other
        programs have a prefix, a head, and scalars."""
        model = self.trained(steps=30)
        expected = self.tokens("--init", model, "--prompt", "the cat ", "--tokens", 30)
        tensors = read_tensors(self.folder / model)
        context, dim = tensors["wpe.weight"][1]
        self.assertEqual(tensors["h.0.attn.c_attn.weight"][1], [dim, 3 * dim])
        self.assertEqual(tensors["h.1.mlp.c_fc.weight"][1], [dim, 4 * dim])
        self.assertEqual(tensors["h.1.mlp.c_proj.weight"][1], [4 * dim, dim])
        self.assertEqual(tensors["wte.weight"][1], [256, dim])
        floats = struct.pack(f"<{context * context}f", *[float(j <= i) for i in range(context) for j in range(context)])
        booleans = bytes(j <= i for i in range(context) for j in range(context))
        square = [1, 1, context, context]
        scalar = ("F32", [], struct.pack("<f", -1e4))
        head = tensors["wte.weight"]
        for name, prefix, masks, more in (
            ("published", "", {"attn.bias": ("F32", square, floats)}, {}),
            ("booleans", "", {"attn.bias": ("BOOL", square, booleans), "attn.masked_bias": scalar}, {}),
            ("exported", "transformer.", {"attn.bias": ("U8", square, booleans), "attn.masked_bias": scalar}, {"lm_head.weight": head}),
        ):
            with self.subTest(name):
                all_of = {prefix + key: tensor for key, tensor in tensors.items()} | more
                for layer in range(2):
                    all_of |= {f"{prefix}h.{layer}.{key}": mask for key, mask in masks.items()}
                folder = self.folder / name
                folder.mkdir()
                write_tensors(folder / "model.safetensors", all_of)
                (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_head": 4, "n_embd": dim, "n_layer": 2}))
                found = self.generate("--init", f"{name}/model.safetensors", "--prompt", "the cat ", "--tokens", 30)
                self.assertEqual(found["model"], MODEL)
                self.assertEqual([sequence["tokens"] for sequence in found["sequences"]], expected)
                self.assertEqual(self.tokens("--init", f"{name}/model.safetensors", "--prompt", "the cat ", "--tokens", 30, "--tensor", 2), expected)
                self.assert_done(self.train("--strategy", "single", "--model", MODEL, "--data", "text:corpus.txt", "--global-batch", 8, "--steps",
                                            1, "--lr", "1e-45", "--init", f"{name}/model.safetensors", "--out", f"{name}-run"))
                self.assertEqual(read_tensors(self.folder / f"{name}-run" / "model.safetensors"), tensors)

    def test_the_model_travels_with_the_file(self):
        """The heads are in the file that psring writes; without them they are asked for; another model is named."""
        other = MODEL.replace("heads=4", "heads=2")
        model = self.trained(model=other, steps=1)
        (self.folder / "alone").mkdir()
        (self.folder / model).rename(self.folder / "alone" / "m.safetensors")
        moved, prompt = "alone/m.safetensors", ["--prompt", "the cat ", "--tokens", 20]
        found = self.generate("--init", moved, *prompt)
        self.assertEqual(found["model"], other)
        self.assert_done(self.run_program("psring", "quantize", "--init", moved, "--weights", "int8", "--out", "q.safetensors"))
        self.assertEqual(self.generate("--init", "q.safetensors", *prompt)["model"], other)
        again = ["--strategy", "single", "--data", "text:corpus.txt", "--global-batch", 8, "--steps", 1]
        self.assert_refused(self.train(*again, "--model", MODEL, "--init", moved), DATA, f"{moved}: holds a {other}", f"--model is {MODEL}")
        self.assert_done(self.train(*again, "--model", other, "--init", moved, "--out", "again"))

        tensors = read_tensors(self.folder / moved)
        write_tensors(self.folder / "alone" / "plain.safetensors", tensors)
        plain = ["--init", "alone/plain.safetensors", *prompt]
        self.assert_refused(self.run_program("psring", "generate", *plain), USAGE, "alone/plain.safetensors: its tensors do not show the number of heads",
                            "--model gpt:layers=2,dim=64,heads=N,context=64,vocab=256")
        self.assertEqual(self.generate(*plain, "--model", other)["sequences"], found["sequences"])

        dtype, shape, content = tensors["wte.weight"]
        for name, head, status in (("tied", content, 0), ("untied", content[:-4] + struct.pack("<f", 9.0), DATA)):
            write_tensors(self.folder / "alone" / f"{name}.safetensors", {**tensors, "lm_head.weight": (dtype, shape, head)})
            for words in (["generate", *prompt], ["train", *again]):
                words = ["psring", *words, "--model", other, "--init", f"alone/{name}.safetensors"]
                if status == 0:
                    self.assert_done(self.run_program(*words))
                else:
                    self.assert_refused(self.run_program(*words), status, f"alone/{name}.safetensors", "lm_head.weight")

    def test_another_model_of_the_same_tensors_is_named(self):
        job = ["--strategy", "single", "--global-batch", 4, "--steps", 1, "--data", "synthetic"]
        self.assert_done(self.train(*job, "--model", "mlp:4-8-d0.5-2", "--out", "first"))
        result = self.train(*job, "--model", "mlp:4-8-2", "--init", "first/model.safetensors", "--out", "second")
        self.assert_done(result)
        self.assertIn("--init first/model.safetensors: was saved by --model mlp:4-8-d0.5-2\n", result.out)

    def test_own_vocabulary(self):
        """Text to tokens, training on them, and a model that speaks in them."""
        (self.folder / "corpus.txt").write_text(text_of(3000))
        self.assert_done(self.run_program("psring", "tokenize", "--train", "corpus.txt", "--vocab", 320, "--out", "words"))
        result = self.run_program("psring", "tokenize", "corpus.txt", "--tokenizer", "words", "--out", "corpus.tokens")
        self.assert_done(result)
        vocabulary = json.loads((self.folder / "words" / "vocab.json").read_text())
        self.assertLessEqual(len(vocabulary), 320)
        self.assertIn(f"vocab={len(vocabulary)}", result.out)
        data = (self.folder / "corpus.tokens").read_bytes()
        tokens = struct.unpack(f"<{len(data) // 2}H", data)
        self.assertLess(max(tokens), len(vocabulary))
        self.assertLess(len(tokens), len(text_of(3000)) / 2)
        back = self.run_program("psring", "tokenize", "--decode", "corpus.tokens", "--tokenizer", "words")
        self.assert_done(back)
        self.assertEqual(back.out, text_of(3000))

        model = self.trained(model=f"gpt:layers=2,dim=64,heads=4,context=32,vocab={len(vocabulary)}", data="tokens:corpus.tokens")
        (sequence,) = self.generate("--init", model, "--tokenizer", "words", "--prompt", "the cat", "--tokens", 20)["sequences"]
        self.assertIn("sat on the mat", "the cat" + sequence["text"])
        for name in ("vocab.json", "merges.txt"):
            (self.folder / "words" / name).rename(self.folder / "run" / name)  # found beside the weights
        self.assertEqual(self.tokens("--init", model, "--prompt", "the cat", "--tokens", 20), [sequence["tokens"]])
        (self.folder / "blank").write_text("\n")
        begins = self.generate("--init", model, "--prompt-file", "blank", "--tokens", 5)["sequences"][0]["prompt"]
        self.assertEqual(begins, [vocabulary["<|endoftext|>"]])
        for empty in (["--prompt", ""], ["--prompt="]):
            (sequence,) = self.generate("--init", model, *empty, "--tokens", 5)["sequences"]
            self.assertEqual(sequence["prompt"], begins)
        lists = self.generate("--init", model, "--prompt=[the,cat]", "--prompt", "", "--tokens", 5)["sequences"]
        self.assertEqual(len(lists), 2)  # a prompt in brackets is one text

    def test_bad_input(self):
        model = self.trained(steps=1)
        run = ["--init", model]
        (self.folder / "blank").write_text("\n")
        for options, status, words in (
            ([*run, "--prompt", ""], USAGE, ["--prompt: is empty", "<|endoftext|>"]),
            ([*run, "--prompt="], USAGE, ["--prompt: is empty", "<|endoftext|>"]),
            ([*run, "--prompt-file", "blank"], USAGE, ["empty", "<|endoftext|>"]),
            ([*run], USAGE, ["--prompt"]),
            ([*run, "--prompt-tokens", "256"], USAGE, ["token 256", "vocabulary of 256"]),
            ([*run, "--prompt-tokens", "1,x"], USAGE, ["--prompt-tokens"]),
            ([*run, "--prompt-tokens", ""], USAGE, ["--prompt-tokens", "''"]),
            ([*run, "--prompt", "a" * 65, "--tokens", 1], USAGE, ["65 tokens", "context is 64"]),
            ([*run, "--prompt", "abc", "--tokens", 63], USAGE, ["at most 62"]),
            ([*run, "--prompt", "a", "--tokens", 0], USAGE, ["--tokens"]),
            ([*run, "--prompt", "a", "--temperature", "-1"], USAGE, ["--temperature"]),
            ([*run, "--prompt", "a", "--temperature", "nan"], USAGE, ["--temperature"]),
            ([*run, "--prompt", "a", "--top-k", 3], USAGE, ["--top-k"]),
            ([*run, "--prompt", "a", "--top-p", "0.5"], USAGE, ["--top-p"]),
            ([*run, "--prompt", "a", "--temperature", 1, "--top-p", "0"], USAGE, ["--top-p"]),
            ([*run, "--prompt", "a", "--cache", "maybe"], USAGE, ["--cache"]),
            ([*run, "--prompt", "a", "--cache", "off", "--measure"], USAGE, ["--measure"]),
            ([*run, "--prompt", "a", "--threads", 0], USAGE, ["--threads"]),
            ([*run, "--prompt", "a", "--weights", "int3"], USAGE, ["--weights"]),
            ([*run, "--prompt", "a", "--weights", "int4:group=48"], USAGE, ["group"]),
            ([*run, "--prompt", "a", "--model", "mlp:784-10"], USAGE, ["only gpt"]),
            ([*run, "--prompt", "a", "--model", "gpt:layers=1,dim=64,heads=4,context=64,vocab=256"], USAGE, ["--model", f"{model} holds a {MODEL}"]),
            ([*run, "--prompt", "a", "--model", MODEL.replace("heads=4", "heads=8")], USAGE, [f"{model} holds a {MODEL}"]),
            ([*run, "--prompt", "a", "--tokenizer", "nowhere"], DATA, ["nowhere"]),
            ([*run, "--prompt", "a", "--evaluate", "text:corpus.txt"], USAGE, ["--evaluate"]),
            ([*run, "--evaluate", "fashion-mnist"], DATA, ["--evaluate"]),
            ([*run, "--evaluate", "text:nowhere"], DATA, ["nowhere"]),
            ([*run, "--prompt-file", "nowhere"], DATA, ["nowhere"]),
            (["--init", "nowhere", "--prompt", "a"], DATA, ["nowhere"]),
            (["--init", "corpus.txt", "--prompt", "a"], DATA, ["corpus.txt"]),
        ):
            with self.subTest(options):
                self.assert_refused(self.run_program("psring", "generate", *options), status, *words)
        self.assertEqual(len(self.tokens(*run, "--prompt", "abc", "--tokens", 62)[0]), 62)
        for options, status, words in (
            (["corpus.txt"], USAGE, ["--out"]),
            (["corpus.txt", "--train", "--out", "x"], USAGE, ["--vocab"]),
            (["corpus.txt", "--train", "--vocab", 100, "--out", "x"], USAGE, ["257"]),
            (["corpus.txt", "--train", "--vocab", 70000, "--out", "x"], USAGE, ["16 bits"]),
            (["corpus.txt", "--train", "--decode", "--vocab", 300, "--out", "x"], USAGE, ["--decode"]),
            (["corpus.txt", "--vocab", 300, "--out", "x"], USAGE, ["--vocab"]),
            (["nowhere", "--out", "x"], DATA, ["nowhere"]),
            (["corpus.txt", "--decode"], DATA, ["corpus.txt", "token"]),
        ):
            with self.subTest(options):
                self.assert_refused(self.run_program("psring", "tokenize", *options), status, *words)
        self.assert_refused(self.run_program("psring", "quantize", "--init", model, "--weights", "f32", "--out", "x"), USAGE, "f32")


if __name__ == "__main__":
    unittest.main()
