// The model that is served, and what answers need to know of it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/load.h"
#include "server/engine_loop.h"

namespace triptych::server {

class ModelHost {
 public:
  /// `names`: what clients may call it, the first of which answers carry.
  ModelHost(std::unique_ptr<LoadedModel> model, const EngineOptions& options, std::vector<std::string> names);

  const LoadedModel& model() const noexcept { return *model_; }
  EngineLoop& engine() noexcept { return *engine_; }
  const EngineOptions& engine_options() const noexcept { return options_; }
  const std::vector<std::string>& names() const noexcept { return names_; }
  const std::string& name() const noexcept { return names_.front(); }
  bool is_called(std::string_view name) const;
  std::int64_t created_s() const noexcept { return created_s_; }
  /// The bytes that a token adds to a text, not always whole characters; special tokens by their names.
  const std::string& token_bytes(std::int32_t id) const;

 private:
  std::unique_ptr<LoadedModel> model_;
  EngineOptions options_;
  std::vector<std::string> names_;
  std::vector<std::string> token_bytes_;
  std::int64_t created_s_ = 0;
  std::unique_ptr<EngineLoop> engine_;  // last: it uses the others
};

}  // namespace triptych::server
