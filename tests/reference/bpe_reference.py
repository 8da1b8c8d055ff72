"""GPT-2's byte-pair encoding, written for clearness: by the published pattern in the module `regex`, in rounds.

    bpe_reference.py train TEXT VOCAB OUT         learn merges by counting all pairs anew each time
    bpe_reference.py encode VOCAB.json MERGES.txt TEXT OUT
    bpe_reference.py words TEXT OUT               the pattern's matches, as a JSON list of hexadecimal bytes

Exit status 77: the module is not there (Debian: python3-regex).
"""

import collections
import json
import pathlib
import sys

try:
    import regex
except ImportError:
    sys.exit(77)

TABLE = pathlib.Path(__file__).resolve().parents[2] / "worker" / "data" / "tokenizer" / "unicode_table.h"


def classes():
    """Letters and numbers, as `regex` knows them. Another version than the table's may know more of them: then the table's."""
    text = TABLE.read_text()
    if f"from the module regex {regex.__version__}.\n" in text:
        return r"\p{L}", r"\p{N}"
    ranges = regex.compile(r"\{0x(\w+), 0x(\w+)\}")
    return ["".join(f"\\U{int(first, 16):08x}-\\U{int(last, 16):08x}" for first, last in ranges.findall(part))
            for part in text.split("kNumbers")]


LETTERS, NUMBERS = classes()
PATTERN = regex.compile(rf"""'s|'t|'re|'ve|'m|'ll|'d| ?[{LETTERS}]+| ?[{NUMBERS}]+| ?[^\s{LETTERS}{NUMBERS}]+|\s+(?!\S)|\s+""")
END = "<|endoftext|>"


def bytes_to_unicode():
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{byte: chr(byte) for byte in printable}, **{byte: chr(256 + i) for i, byte in enumerate(others)}}


CHARACTERS = bytes_to_unicode()


def words_of(text):
    return PATTERN.findall(text)


def symbols(word):
    return tuple(CHARACTERS[byte] for byte in word.encode())


def merged(word, pair):
    out, i = [], 0
    while i < len(word):
        if word[i : i + 2] == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return tuple(out)


def train(text, vocab):
    tokens = list(CHARACTERS.values())
    numbers = {token: i for i, token in enumerate(tokens)}
    words = collections.Counter(symbols(word) for part in text.split(END) for word in words_of(part))
    merges = []
    while len(tokens) + 1 < vocab:
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], numbers[pair[0]], numbers[pair[1]]))
        if pairs[best] < 2:
            break
        merges.append(best)
        if "".join(best) not in numbers:
            numbers["".join(best)] = len(tokens)
            tokens.append("".join(best))
        after = collections.Counter()
        for word, count in words.items():
            after[merged(word, best)] += count
        words = after
    return [*tokens, END], merges


def encode(vocab, merges, text):
    ranks = dict(zip(merges, range(len(merges))))
    cache = {}

    def encode_word(word):
        if word not in cache:
            parts = symbols(word)
            while len(parts) > 1:
                best = min(zip(parts, parts[1:]), key=lambda pair: ranks.get(pair, len(ranks)))
                if best not in ranks:
                    break
                parts = merged(parts, best)
            cache[word] = [vocab[part] for part in parts]
        return cache[word]

    numbers = []
    for i, part in enumerate(text.split(END)):
        if i > 0:
            numbers.append(vocab[END])
        for word in words_of(part):
            numbers += encode_word(word)
    return numbers


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def main():
    what, *arguments = sys.argv[1:]
    out = arguments.pop()
    if what == "train":
        text, vocab = arguments
        result = train(read(text), int(vocab))
    elif what == "encode":
        vocab, merges, text = arguments
        lines = read(merges).split("\n")[1:-1]
        result = encode(json.loads(read(vocab)), [tuple(line.split(" ")) for line in lines], read(text))
    else:
        result = [word.encode().hex() for word in words_of(read(arguments[0]))]
    with open(out, "w", encoding="utf-8") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
