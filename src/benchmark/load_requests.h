// Requests of a trace as bodies of OpenAI's chat completions.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "benchmark/serve_trace.h"

namespace triptych {

struct LoadRequestOptions {
  std::string model;                  // "model" of each request
  std::filesystem::path folder = {};  // that files of pictures are relative to
  std::string fields = {};            // a JSON object merged into each body (RFC 7396: null drops a member)
};

/// One body a request: streamed, with usage, greedy, and `ignore_eos`, so that an answer has as many tokens
/// as the trace says. Pictures are data URLs, those made up are JPEG; a prompt given by its length is so many
/// common words, which are a token each or a little more. Throws Error(kInvalidArgument, kInvalidFile,
/// kNotFound) naming the request.
std::vector<std::string> make_load_bodies(const std::vector<TraceRequest>& trace,
                                          const LoadRequestOptions& options);

}  // namespace triptych
