// A conversation line by line, at a terminal or from a script.
#pragma once

#include <string>

#include "api/public.h"
#include "cli/chat_session.h"
#include "cli/run_flags.h"

namespace triptych::cli {

struct Answered {
  bool interrupted = false;
  std::vector<api::Region> regions;
  bool context_is_full = false;
};

/// Asks, and shows the answer as the flags say.
Answered answer(const RunFlags& flags, const api::Model& model, ChatSession& session,
                const std::string& text);

/// Reads messages and commands from stdin until their end. Returns the exit code.
int chat(const RunFlags& flags, const api::Model& model, ChatSession& session);

}  // namespace triptych::cli
