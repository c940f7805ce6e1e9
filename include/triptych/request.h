// What is asked of a model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "triptych/chat_message.h"
#include "triptych/media_options.h"
#include "triptych/sampling.h"

namespace triptych::api {

struct Request {
  std::vector<ChatMessage> messages;
  /// Absent: Model::default_sampling().
  std::optional<SamplingParams> sampling = {};
  MediaOptions media_options = {};
  /// The answer goes on with the text of the last message instead of beginning a new one.
  bool continue_final_message = false;
  // How it waits among others. Lower priorities go first; waiting makes up for a level after some time
  // (EngineOptions::priority_aging_ms).
  int priority = 0;
  /// Whom it is for, an API key for instance: tenants share what there is by tokens
  /// (EngineOptions::tenant_weights).
  std::string tenant = {};
  /// From submission on; then it ends with kTimeout. 0: never.
  double timeout_ms = 0;
  /// Requests share keys and values only with those of the same salt, so that the time an answer takes tells
  /// nobody what others asked. Named as in vLLM.
  std::string cache_salt = {};
};

}  // namespace triptych::api
