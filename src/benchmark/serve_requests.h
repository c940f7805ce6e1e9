// Requests of a trace as the engine takes them: pictures and prompts are made up in the sizes it states, the
// same each time.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "benchmark/serve_trace.h"
#include "engine/load.h"

namespace triptych {

class ServeRequests {
 public:
  /// Encodes a picture of each size as JPEG, and looks at the files. Borrows all but `folder`. Throws Error
  /// as run_serve does.
  ServeRequests(const LoadedModel& model, const std::vector<TraceRequest>& trace, const MediaOptions& media,
                std::filesystem::path folder);

  /// Tokens of the longest prompt and answer together, at most the model's context where a prompt is text.
  std::int64_t max_context_tokens() const noexcept { return max_context_tokens_; }

  /// Decodes and prepares request `index`. Thread-safe.
  PreparedRequest prepare(std::size_t index) const;

 private:
  MediaInput decode(const TracePicture& picture) const;
  std::vector<std::int32_t> ids_of(const TraceRequest& request, std::size_t index) const;
  std::int64_t tokens_of(const TraceRequest& request) const;

  const LoadedModel& model_;
  const std::vector<TraceRequest>& trace_;
  const MediaOptions& media_;
  std::filesystem::path folder_;
  std::map<std::pair<int, int>, std::vector<std::byte>> jpegs_;  // by width and height
  std::int64_t max_context_tokens_ = 0;
};

}  // namespace triptych
