// The large tables of a tokenizer.json, model.vocab and model.merges, read straight into vectors; a document
// tree of hundreds of thousands of nodes would cost several times the parse. All other members become a tree
// as usual.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/vocab.h"

namespace triptych {

struct ModelTables {
  bool has_vocab = false;
  std::vector<Vocab::Entry> vocab;  // {"token": id}, or ids in order for [["token", score], ...]
  std::vector<double> scores;       // of the second form
  bool has_merges = false;
  std::vector<std::pair<std::string, std::string>> merges;  // "a b" or ["a", "b"]
};

/// The document without the two tables. Throws Error(kInvalidFile) with the place.
Json parse_with_tables(std::string_view text, std::string_view source, ModelTables& tables);

/// vocab.json: an object {"token": id}.
void parse_vocab_json(std::string_view text, std::string_view source, ModelTables& tables);

/// One merge in its spelling as text. Throws Error(kInvalidFile) that names `where`.
std::pair<std::string, std::string> split_merge(std::string_view text, std::string_view where);

}  // namespace triptych
