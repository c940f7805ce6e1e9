// From wire requests to what an engine runs: pictures decoded and resized, prompts rendered and tokenized.
// Thread-safe; for the threads of the work pool.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "engine/load.h"
#include "server/chat_request.h"
#include "server/media_fetch.h"
#include "server/metrics.h"

namespace triptych::server {

struct MediaRules {
  std::uint64_t max_image_pixels = 64'000'000;
  std::uint64_t max_request_pixels = 256'000'000;  // of all pictures of a request, as decoded
  std::filesystem::path local_root;                // file URLs below it are read; empty: none are
};

/// What preparing needs beside the request. Borrowed.
struct PrepareContext {
  const LoadedModel& model;
  const MediaRules& rules;
  ServerMetrics& metrics;
  /// Asked between the parts: the client is gone, and the rest is not worth doing.
  std::function<bool()> is_cancelled;
  /// Pixels of pictures whose rows are at hand are not made; see LoadedModel::prepare.
  LoadedModel::HasRows has_rows = {};
};

/// Whether pictures are named by http or https URLs.
bool names_hosts(const ChatWire& wire);
/// Fetches those, one after another; waits for other hosts. Throws as MediaFetcher::fetch.
void fetch_media(const PrepareContext& context, const MediaFetcher& fetcher, MediaFetcher::Budget& budget,
                 ChatWire& wire);

/// Throws ApiError with the field's path: 400, 413 over a limit, 415 for a format that is not read; ApiError
/// 499 when cancelled.
PreparedRequest prepare_chat(const PrepareContext& context, const ChatWire& wire);
PreparedRequest prepare_completion(const PrepareContext& context, const CompletionPrompt& prompt);

/// Compiles the constraint of an answer, if it has one, so that the engine finds it ready.
void prepare_constraint(const LoadedModel& model, const SamplingParams& params);

PreparedRequest copy_of(const PreparedRequest& request);

}  // namespace triptych::server
