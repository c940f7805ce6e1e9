// Every case in tests/data/tokenizers, made by tools/make_tokenizer_cases.py with the reference libraries,
// and, where it is at hand, the larger set of reference values outside the repository (TRIPTYCH_SHARED).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "support/source_dir.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

fs::path data_directory() { return test::source_dir() / "tests" / "data" / "tokenizers"; }

std::string read_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream out;
  out << stream.rdbuf();
  return out.str();
}

Json read_json(const fs::path& path) { return parse_json(read_file(path), path.string()); }

std::string stream_of(const Tokenizer& tokenizer, const Ids& ids, bool skip) {
  StreamDecoder decoder(tokenizer, {.skip_special_tokens = skip});
  std::string out;
  for (const std::int32_t id : ids) out += decoder.push(id);
  return out + decoder.finish();
}

void check_case(const Tokenizer& tokenizer, const Json& c) {
  if (c.contains("decode")) {
    EXPECT_EQ(tokenizer.decode(c["decode"].get<Ids>()), c["decoded"].get<std::string>()) << c["decode"];
    return;
  }
  const auto text = c["text"].get<std::string>();
  const auto plain = c["ids"].get<Ids>();
  const Ids special = c.contains("ids_with_special") ? c["ids_with_special"].get<Ids>() : plain;
  EXPECT_EQ(tokenizer.encode(text, {.add_special_tokens = false}), plain) << c["text"];
  EXPECT_EQ(tokenizer.encode(text), special) << c["text"];
  if (!c.contains("decoded")) return;
  EXPECT_EQ(tokenizer.decode(special), c["decoded"].get<std::string>()) << c["text"];
  EXPECT_EQ(tokenizer.decode(special, {.skip_special_tokens = true}), c["decoded_skip"].get<std::string>())
      << c["text"];
  EXPECT_EQ(stream_of(tokenizer, special, false), c["decoded"].get<std::string>()) << c["text"];
  EXPECT_EQ(stream_of(tokenizer, special, true), c["decoded_skip"].get<std::string>()) << c["text"];
}

TEST(TokenizerCases, EveryComponent) {
  const Json entries = read_json(data_directory() / "components.json");
  EXPECT_GT(entries.size(), 100U);
  for (const Json& entry : entries) {
    SCOPED_TRACE(entry["name"].get<std::string>());
    const auto tokenizer = Tokenizer::from_json(entry["tokenizer"].dump(), "components.json");
    for (const Json& c : entry["cases"]) check_case(*tokenizer, c);
  }
}

TEST(TokenizerCases, EveryCombinationOfAddedTokenFlags) {
  const Json file = read_json(data_directory() / "flags.json");
  std::size_t n = 0;
  for (const Json& row : file["table"]) {
    SCOPED_TRACE(row["base"].get<std::string>() + row["flags"].dump());
    Json document = file["bases"][row["base"].get<std::string>()];
    auto id = static_cast<std::int32_t>(document["model"]["vocab"].size());
    for (const char* content : {"<a>", "<b>"}) {
      Json token = row["flags"];
      token["id"] = id++;
      token["content"] = content;
      document["added_tokens"].push_back(token);
    }
    // Both spellings of the merges.
    for (const bool as_strings : {false, true}) {
      if (as_strings)
        for (Json& merge : document["model"]["merges"])
          merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
      const auto tokenizer = Tokenizer::from_json(document.dump(), "flags.json");
      for (std::size_t k = 0; k < file["texts"].size(); ++k, ++n)
        EXPECT_EQ(tokenizer->encode(file["texts"][k].get<std::string>()), row["ids"][k].get<Ids>())
            << file["texts"][k];
    }
  }
  EXPECT_EQ(n, 2 * (32 + 32 + 16) * file["texts"].size());
}

class DirectoryCases : public testing::TestWithParam<const char*> {};

TEST_P(DirectoryCases, EqualTheReference) {
  const fs::path folder = data_directory() / GetParam();
  const auto tokenizer = Tokenizer::from_directory(folder);
  const Json cases = read_json(folder / "cases.json");
  ASSERT_GE(cases.size(), 7U);
  for (const Json& c : cases) check_case(*tokenizer, c);
}

INSTANTIATE_TEST_SUITE_P(All, DirectoryCases,
                         testing::Values("llava", "qwen2_vl", "fuyu", "blip2", "instructblip", "qformer",
                                         "qwen_vl", "spm_bpe", "spm_unigram", "spm_unigram_rules"));

TEST(TokenizerCases, SentencePieceThatIsNotLegacy) {
  const fs::path work = fs::path(testing::TempDir()) / "spm_not_legacy";
  std::size_t n_different = 0;
  for (const char* name : {"spm_bpe", "spm_unigram"}) {
    fs::remove_all(work);
    fs::create_directories(work);
    fs::copy(data_directory() / name / "tokenizer.model", work / "tokenizer.model");
    std::ofstream(work / "tokenizer_config.json") << R"({"legacy": false, "add_bos_token": false})";
    const auto tokenizer = Tokenizer::from_directory(work);
    for (const Json& c : read_json(data_directory() / name / "cases.json")) {
      n_different += c.contains("ids_not_legacy") ? 1 : 0;
      EXPECT_EQ(tokenizer->encode(c["text"].get<std::string>()),
                (c.contains("ids_not_legacy") ? c["ids_not_legacy"] : c["ids"]).get<Ids>())
          << name << c["text"];
    }
  }
  EXPECT_GT(n_different, 5U);
  fs::remove_all(work);
}

std::optional<fs::path> shared_directory() {
  const char* named = std::getenv("TRIPTYCH_SHARED");
  const fs::path path = named != nullptr ? fs::path(named) : test::source_dir() / ".." / "shared";
  return fs::exists(path / "golden" / "tokenizers") ? std::optional(path) : std::nullopt;
}

std::string unzip(const fs::path& path) {
  std::string out;
  const std::string command = "gzip -dc '" + path.string() + "'";
  const auto close = [](std::FILE* f) { pclose(f); };
  const std::unique_ptr<std::FILE, decltype(close)> pipe(popen(command.c_str(), "r"), close);
  std::array<char, 65536> buffer{};
  for (std::size_t n = 0; pipe && (n = std::fread(buffer.data(), 1, buffer.size(), pipe.get())) > 0;)
    out.append(buffer.data(), n);
  return out;
}

TEST(TokenizerCases, PublishedVocabularies) {
  const auto shared = shared_directory();
  if (!shared) GTEST_SKIP() << "no reference values: set TRIPTYCH_SHARED to their directory";
  for (const char* name : {"mistral", "qwen"}) {
    const fs::path folder = *shared / "golden" / "tokenizers" / name;
    const std::string text = fs::exists(folder / "tokenizer.json") ? read_file(folder / "tokenizer.json")
                                                                   : unzip(folder / "tokenizer.json.gz");
    const auto tokenizer = Tokenizer::from_json(text, name);
    const Json cases = read_json(folder / "golden.json");
    EXPECT_GT(cases.size(), 100U);
    for (Json c : cases) {
      // Decodings there are of the ids without the tokens that the post-processor adds.
      const auto ids = c["ids"].get<Ids>();
      EXPECT_EQ(tokenizer->decode(ids), c["decoded"].get<std::string>()) << c["text"];
      EXPECT_EQ(tokenizer->decode(ids, {.skip_special_tokens = true}), c["decoded_skip"].get<std::string>());
      EXPECT_EQ(stream_of(*tokenizer, ids, false), c["decoded"].get<std::string>()) << c["text"];
      c.erase("decoded");
      check_case(*tokenizer, c);
    }
  }
}

}  // namespace
}  // namespace triptych
