#include "server/model_host.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "text/token_bytes.h"

namespace triptych::server {
namespace {

std::vector<std::string> bytes_of_tokens(const Tokenizer& tokenizer) {
  std::vector<std::string> out;
  try {
    out = token_bytes(tokenizer).tokens;
  } catch (const Error&) {  // its tokens have none of their own: their names must do
  }
  out.resize(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (std::size_t id = 0; id < out.size(); ++id)
    if (out[id].empty()) out[id] = tokenizer.id_to_token(static_cast<std::int32_t>(id));
  return out;
}

}  // namespace

ModelHost::ModelHost(std::unique_ptr<LoadedModel> model, const EngineOptions& options,
                     std::vector<std::string> names)
    : model_(std::move(model)), options_(options), names_(std::move(names)) {
  TRIPTYCH_CHECK(!names_.empty(), "a served model needs a name");
  token_bytes_ = bytes_of_tokens(model_->tokenizer());
  created_s_ =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  engine_ = std::make_unique<EngineLoop>(*model_, options_);
}

bool ModelHost::is_called(std::string_view name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

const std::string& ModelHost::token_bytes(std::int32_t id) const {
  static const std::string none;
  return id >= 0 && static_cast<std::size_t>(id) < token_bytes_.size()
             ? token_bytes_[static_cast<std::size_t>(id)]
             : none;
}

}  // namespace triptych::server
