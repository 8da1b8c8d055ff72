"""A run continues on the data, the tokenizer and the model of its checkpoint, or says in one line what differs."""

import gzip
import json
import struct
import unittest

from support import ProgramTest, until

DATA = 3
GPT = "gpt:layers=1,dim=8,heads=2,context=8,vocab=256"
CSV = "".join(f"{i},{i % 3}.5,{i % 2}\n" for i in range(40))


class OtherData(ProgramTest):
    def begin(self, model, data, out="first", **files):
        """Saves checkpoints/step-00000002 of a run."""
        self.job = ["--strategy", "ddp", "--workers", 2, "--model", model, "--global-batch", 4, "--shuffle", "none"]
        self.assert_done(self.train(*self.job, "--data", data, "--steps", 2, "--checkpoint-every", 2, "--out", out))
        return f"{out}/checkpoints"

    def go_on(self, data, *more, out=None, resume="first/checkpoints"):
        where = ["--out", out] if out else []
        return self.train(*self.job, "--data", data, "--steps", 4, "--resume", resume, *where, *more)

    def test_a_text_of_equal_length(self):
        text = bytes(range(32, 96)) * 40
        self.file("a.txt", text)
        self.file("copy.txt", text)
        self.begin(GPT, "text:a.txt")
        self.assert_done(self.go_on("text:copy.txt", out="same"))
        for place in (0, len(text) // 2 + 1, len(text) - 1):
            with self.subTest(place=place):
                other = bytearray(text)
                other[place] ^= 1
                self.file("b.txt", bytes(other))
                self.assert_refused(self.go_on("text:b.txt"), DATA, "--resume", "first/checkpoints/step-00000002: saved with data 2560 bytes, sample ",
                                    "this run's is 2560 bytes, sample ", "--other-data")
        self.file("b.txt", text[::-1])
        self.assert_done(self.go_on("text:b.txt", "--other-data", out="other"))
        self.assertNotEqual(self.model("same"), self.model("other"))
        self.assert_refused(self.go_on("text:b.txt", "--other-data", "--seed", 9), DATA, "saved with seed 0, this run's is 9")
        self.file("shorter.txt", text[:-8])
        self.assert_refused(self.go_on("text:shorter.txt"), DATA, "data 2560 bytes", "2552 bytes", "; training samples ")
        self.assert_refused(self.train(*self.job, "--data", "text:a.txt", "--steps", 4, "--other-data"), 2, "--other-data", "--resume")

    def test_values_and_not_files_are_compared(self):
        self.file("a.csv", CSV.encode())
        self.file("same.csv", b"\xef\xbb\xbfx,y,class\r\n" + CSV.replace("\n", "\r\n").replace(".5", ".50").encode())
        self.file("other.csv", CSV.replace("7,", "8,", 1).encode())
        self.begin("mlp:2-4-2", "csv:train=a.csv,test=a.csv")
        self.assert_done(self.go_on("csv:train=same.csv,test=same.csv", out="same"))
        for data in ("csv:train=other.csv,test=a.csv", "csv:train=a.csv,test=other.csv", "csv:a.csv"):
            with self.subTest(data):
                self.assert_refused(self.go_on(data), DATA, "saved with data 40 samples of 3 values, sample ")

    def test_images_may_be_compressed(self):
        def idx(magic, extents, values):
            return struct.pack(">I", magic) + b"".join(struct.pack(">I", extent) for extent in extents) + bytes(values)

        images, labels = idx(0x0803, (20, 2, 2), [i * 3 % 250 for i in range(80)]), idx(0x0801, (20,), [i % 2 for i in range(20)])
        for part in ("train", "t10k"):
            self.file(f"plain/{part}-images-idx3-ubyte", images)
            self.file(f"plain/{part}-labels-idx1-ubyte", labels)
            self.file(f"gz/{part}-images-idx3-ubyte.gz", gzip.compress(images))
            self.file(f"gz/{part}-labels-idx1-ubyte.gz", gzip.compress(labels))
        self.begin("mlp:4-4-2", "idx:plain")
        self.assert_done(self.go_on("idx:gz"))
        self.file("gz/train-labels-idx1-ubyte.gz", gzip.compress(labels[:-1] + b"\0"))
        self.assert_refused(self.go_on("idx:gz"), DATA, "saved with data 20 samples of 5 values")

    def test_the_tokenizer(self):
        self.file("text", b"the cat sat on the mat. the dog ran to the barn. " * 20)
        for name, vocab in (("one", 270), ("two", 275)):
            self.assert_done(self.run_program("psring", "tokenize", "--train", "text", "--vocab", vocab, "--out", name))
        self.assert_done(self.run_program("psring", "tokenize", "text", "--tokenizer", "one", "--out", "tokens"))
        note = (self.folder / "tokens.tokenizer").read_text()
        self.assertRegex(note, r"\A270 tokens, CRC32C [0-9a-f]{8}\n\Z")
        self.begin(GPT.replace("vocab=256", "vocab=300"), "tokens:tokens")
        self.assert_done(self.run_program("psring", "tokenize", "text", "--tokenizer", "two", "--out", "other"))
        self.assert_refused(self.go_on("tokens:other"), DATA, "saved with data ", "tokenizer 270 tokens, CRC32C ", "this run's is 275 tokens, CRC32C ")
        (self.folder / "tokens.tokenizer").write_text((self.folder / "other.tokenizer").read_text())
        self.assert_refused(self.go_on("tokens:tokens"), DATA, "saved with tokenizer 270 tokens", "--other-data")
        (self.folder / "tokens.tokenizer").unlink()
        self.assert_done(self.go_on("tokens:tokens"))  # nobody says which tokenizer it is

    def test_the_model(self):
        self.file("a.txt", bytes(range(32, 96)) * 40)
        self.begin(GPT, "text:a.txt")
        self.job[self.job.index(GPT)] = GPT.replace("heads=2", "heads=4")
        self.assert_refused(self.go_on("text:a.txt", "--other-data"), DATA, f"saved with model {GPT}, this run's is gpt:layers=1,dim=8,heads=4")

    def test_a_checkpoint_without_a_fingerprint(self):
        """An earlier psring wrote it: its data is unknown, and continues by --other-data alone."""
        self.file("a.csv", CSV.encode())
        self.begin("mlp:2-4-2", "csv:a.csv")
        path = self.folder / "first" / "checkpoints" / "step-00000002" / "manifest.json"
        manifest = json.loads(path.read_text())
        del manifest["crc32c"], manifest["facts"]["data"], manifest["facts"]["tokenizer"]
        rest = json.dumps(manifest)[1:] + "\n"
        path.write_text(f'{{"crc32c": "{crc32c(rest.encode()):08x}",' + rest)
        self.assert_refused(self.go_on("csv:a.csv"), DATA, "saved with data unknown, this run's is 40 samples of 3 values", "--other-data")
        self.assert_done(self.go_on("csv:a.csv", "--other-data"))

    def test_psring_resume(self):
        """The run's data changed under it; --other-data holds for this part alone."""
        self.file("a.csv", CSV.encode())
        job = self.start("psring", "train", "--strategy", "single", "--workers", 1, "--model", "mlp:2-4-2", "--global-batch", 4, "--data",
                         f"csv:{self.folder}/a.csv", "--steps", 100000000, "--checkpoint-every", 5, "--checkpoint-keep", 2, "--out", "run")

        def stop(process, before):
            checkpoints = self.folder / "run" / "checkpoints"
            complete = lambda: {path.name for path in checkpoints.glob("step-????????")} if checkpoints.exists() else set()
            until(lambda: process.poll() is not None or complete() - before, "no checkpoint")
            process.terminate()
            self.assertEqual(self.finish(process).status, 143)
            return complete()

        saved = stop(job, set())
        self.file("a.csv", CSV.replace("7,", "8,", 1).encode())
        self.assert_refused(self.run_program("psring", "resume", "run"), DATA, "saved with data 40 samples", "--other-data")
        saved = stop(self.start("psring", "resume", "run", "--other-data"), saved)
        self.file("a.csv", CSV.encode())
        self.assert_refused(self.run_program("psring", "resume", "run"), DATA, "saved with data 40 samples", "--other-data")
        self.file("a.csv", CSV.replace("7,", "8,", 1).encode())
        stop(self.start("psring", "resume", "run"), saved)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


if __name__ == "__main__":
    unittest.main()
