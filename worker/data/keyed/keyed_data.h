#pragma once

#include <string>

#include <psring/common/base/text/spec.h>
#include <psring/worker/data/make_dataset.h>

namespace psring::worker {

// Data sets from files whose samples have keys. Which samples are the test set depends on their numbers alone. Errors
// in a file are data errors that name the file, the line and the column.

/// `criteo:FILE`: the format of the Criteo data sets, without a header. The columns of a line are divided by tabs: 0 or
/// 1, then the model's real inputs (13 in Criteo's files), then its key fields (26). A real input x becomes log(1 +
/// max(x, 0)); an empty one is 0. A key is a hexadecimal number; an empty column has no key. The lines 9, 19, 29 …
/// (from 0) are the test set.
DataSplit make_criteo_data(const Spec& spec, const DataNeeds& needs);

/// `pairs:FILE`: a line is user, item, value, divided by tabs, and further columns that are not read. User and item are
/// whole numbers, and the keys of two fields; the value is the real target. The lines 9, 19, 29 … are the test set.
DataSplit make_pairs_data(const Spec& spec, const DataNeeds& needs);

/// `debian:DIR`, the files that `scripts/data debian DIR` makes: which package does this one depend on? An edge of
/// edges.tsv is a sample of class 1, and is followed by `negatives` (1) samples of class 0: the same package, and the
/// target of an edge that is drawn at random, so that targets are drawn by their popularity; a draw that is an edge is
/// repeated. The fields are the features of both packages; the key of a feature is key_of_text. The edges 9, 19, 29 …
/// and the samples after them are the test set. Keys of the spec: negatives, seed (the run's).
DataSplit make_debian_data(const Spec& spec, const DataNeeds& needs);

/// `skip-gram:FILE`: words and their contexts (Mikolov et al., arXiv:1310.4546). A line is a sentence of words divided
/// by blanks. Words that occur less than `least` (5) times in the file are dropped first. The window of a word reaches
/// over 1 … `window` (5) words on both sides within its sentence; its width is drawn at random. A sample is a word, one
/// word of its window, and as many negatives as the model reads, drawn in proportion to the 0.75th power of words'
/// counts; a draw of the context itself is repeated. The training set has the text `draws` (1) times, each time with
/// windows and negatives of its own. The key of a word is key_of_text. The lines 0, 20, 40 … are the test set. Keys of
/// the spec: window, least, draws, seed (the run's).
DataSplit make_skip_gram_data(const Spec& spec, const DataNeeds& needs);

/// The built-in data sets whose samples have this shape, for errors: "criteo-like or criteo:FILE". "" without keys.
std::string keyed_data_for(const DataNeeds& needs);

}  // namespace psring::worker
