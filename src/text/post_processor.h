// Post-processors of tokenizer.json ("post_processor"): TemplateProcessing, BertProcessing,
// RobertaProcessing, ByteLevel (no effect on ids), Sequence. They put BOS, EOS, [CLS] and the like around the
// ids of a text.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json.h"

namespace triptych {

/// Ids that go before and after a text's ids: what every supported post-processor comes down to for one
/// sequence.
struct PostProcessor {
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;
  /// The text's ids stand between (a template may leave them out).
  bool keeps_text = true;
};

/// From the JSON value of "post_processor" (may be null). Throws Error(kInvalidFile), or Error(kUnsupported)
/// that names an unknown type or a template that repeats the text.
PostProcessor parse_post_processor(const JsonView& view);

}  // namespace triptych
