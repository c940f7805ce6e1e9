// *.tiktoken: one line a token, "<base64 of its bytes> <rank>", the rank being its id. Words are merged by
// the rank of what a merge gives, whole-word tokens first. Source: openai/tiktoken (load.py, src/lib.rs),
// QwenLM/Qwen-VL tokenization_qwen.py.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"
#include "text/tokenizer_impl.h"

namespace triptych {

/// Qwen's split pattern, which Qwen2 keeps.
std::string_view qwen_split_pattern();

/// Qwen-VL's special tokens, in order; ids follow the last rank: <|endoftext|>, <|im_start|>, <|im_end|>,
/// <|extra_0|> ... <|extra_204|>, <ref>, </ref>, <box>, </box>, <quad>, </quad>, <img>, </img>, <imgpad>.
std::vector<AddedToken> qwen_special_tokens();

/// Throws Error(kInvalidFile) for lines that are not of the form, ranks used twice, or a byte without a
/// token. An empty `hint.tiktoken_pattern` is Qwen's, with NFC before; another pattern goes without
/// normalisation.
std::unique_ptr<TokenizerImpl> parse_tiktoken(std::string_view text, std::string_view source_name,
                                              const TokenizerSource& hint);

}  // namespace triptych
