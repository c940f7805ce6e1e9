#include "text/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/error.h"

namespace triptych {
namespace {

// "content", or {"content": ..., flags}. A bare string is special and, as the reference has it, not
// normalised.
AddedToken parse_token(const JsonView& view) {
  AddedToken token;
  token.special = true;
  if (view.is_string()) {
    token.content = view.as_string();
    return token;
  }
  token.content = view.at("content").as_string();
  token.single_word = view.get_bool("single_word", false);
  token.lstrip = view.get_bool("lstrip", false);
  token.rstrip = view.get_bool("rstrip", false);
  token.special = view.get_bool("special", true);
  token.normalized = view.get_bool("normalized", !token.special);
  return token;
}

void read_token(const JsonView& view, const char* key, std::optional<AddedToken>& out) {
  if (out) return;
  if (const auto member = view.find(key); member && (member->is_string() || member->is_object())) {
    out = parse_token(*member);
    out->special = true;
    if (out->content.empty()) out.reset();
  }
}

void read_flag(const JsonView& view, const char* key, std::optional<bool>& out) {
  if (out) return;
  if (const auto member = view.find(key)) out = member->as_bool();
}

void read_extra(const JsonView& view, const char* key, std::vector<AddedToken>& out) {
  const auto member = view.find(key);
  if (!member) return;
  // Newer files may name the tokens: {"image_token": "<image>"}.
  if (member->is_object()) {
    for (const auto& [name, value] : member->members()) out.push_back(parse_token(value));
  } else {
    for (const JsonView& item : member->items()) out.push_back(parse_token(item));
  }
}

}  // namespace

void read_tokenizer_config(const JsonView& view, TokenizerConfig& config) {
  if (!view.is_object()) view.fail_expected("an object");
  if (config.tokenizer_class.empty()) config.tokenizer_class = view.get_string("tokenizer_class", "");
  read_token(view, "bos_token", config.bos);
  read_token(view, "eos_token", config.eos);
  read_token(view, "pad_token", config.pad);
  read_token(view, "unk_token", config.unk);
  read_token(view, "cls_token", config.cls);
  read_token(view, "sep_token", config.sep);
  read_token(view, "mask_token", config.mask);
  read_flag(view, "add_bos_token", config.add_bos);
  read_flag(view, "add_eos_token", config.add_eos);
  read_flag(view, "add_prefix_space", config.add_prefix_space);
  read_flag(view, "legacy", config.legacy);
  read_flag(view, "strip_accents", config.strip_accents);
  config.clean_up_spaces = view.get_bool("clean_up_tokenization_spaces", config.clean_up_spaces);
  config.do_lower_case = view.get_bool("do_lower_case", config.do_lower_case);
  config.tokenize_chinese_chars = view.get_bool("tokenize_chinese_chars", config.tokenize_chinese_chars);
  read_extra(view, "additional_special_tokens", config.extra_special);
  read_extra(view, "extra_special_tokens", config.extra_special);
  const auto added = view.find("added_tokens_decoder");
  if (!added) return;
  config.added.clear();
  for (const auto& [key, value] : added->members()) {
    AddedToken token = parse_token(value);
    token.special = value.get_bool("special", false);
    token.normalized = value.get_bool("normalized", !token.special);
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (error != std::errc() || end != key.data() + key.size() || token.id < 0)
      fail(ErrorCode::kInvalidFile, "{}: expected an id >= 0", value.path());
    config.added.push_back(std::move(token));
  }
  std::sort(config.added.begin(), config.added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
}

void read_added_tokens(const JsonView& view, TokenizerConfig& config) {
  if (!config.added.empty()) return;
  for (const auto& [content, id] : view.members()) {
    AddedToken token;
    token.content = content;
    token.id = static_cast<std::int32_t>(id.as_int(0, std::numeric_limits<std::int32_t>::max()));
    config.added.push_back(std::move(token));
  }
  std::sort(config.added.begin(), config.added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
}

void apply_tokenizer_config(const TokenizerConfig& config, AddedVocabulary::Ids ids, TokenizerImpl& impl) {
  std::vector<AddedToken> tokens = config.added;
  const auto add_missing = [&](const AddedToken& token) {
    const bool known = impl.added.find(token.content) >= 0 ||
                       std::any_of(tokens.begin(), tokens.end(),
                                   [&](const AddedToken& other) { return other.content == token.content; });
    if (!known) tokens.push_back(token);
  };
  for (const auto* token :
       {&config.bos, &config.eos, &config.unk, &config.sep, &config.pad, &config.cls, &config.mask})
    if (*token) add_missing(**token);
  for (const AddedToken& token : config.extra_special) add_missing(token);
  // A named token is special, whatever its entry among the added ones says.
  for (AddedToken& token : tokens) {
    for (const auto* named :
         {&config.bos, &config.eos, &config.unk, &config.sep, &config.pad, &config.cls, &config.mask})
      if (*named && (*named)->content == token.content) token.special = true;
  }
  if (!tokens.empty()) impl.add_tokens(tokens, ids);

  const auto id_of = [&](const std::optional<AddedToken>& token) -> std::optional<std::int32_t> {
    if (!token) return std::nullopt;
    const std::int32_t id = impl.find(token->content);
    return id >= 0 ? std::optional(id) : std::nullopt;
  };
  impl.bos = id_of(config.bos);
  impl.eos = id_of(config.eos);
  impl.pad = id_of(config.pad);
  if (const auto unk = id_of(config.unk)) impl.unk = unk;

  if (config.add_bos || config.add_eos) {
    impl.post_processor = {};
    if (config.add_bos.value_or(false) && impl.bos) impl.post_processor.before.push_back(*impl.bos);
    if (config.add_eos.value_or(false) && impl.eos) impl.post_processor.after.push_back(*impl.eos);
  }
  // The clean-up was made for WordPiece; it eats real spaces of a BPE, and the reference does not apply it
  // there either.
  if (config.clean_up_spaces && !impl.model->is_bpe()) impl.decoder.push_back(make_cleanup_decoder());
}

}  // namespace triptych
