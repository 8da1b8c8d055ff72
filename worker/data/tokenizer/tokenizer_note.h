#pragma once

#include <string>

#include <psring/worker/data/tokenizer/tokenizer.h>

namespace psring::worker {

// A file of tokens does not say which tokenizer made it. `psring tokenize` writes a note beside it, FILE.tokenizer: one
// line with the number of tokens and a CRC32C of their texts. A checkpoint of a run on the file holds the line.

/// Returns "50257 tokens, CRC32C 1a2b3c4d".
std::string fingerprint_of(const Tokenizer& tokenizer);

/// Writes the note beside a file of tokens.
void write_tokenizer_note(const std::string& tokens_file, const Tokenizer& tokenizer);
/// Returns the note's line; "" if there is none.
std::string tokenizer_note(const std::string& tokens_file);

}  // namespace psring::worker
