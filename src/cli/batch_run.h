// run --jsonl: many questions about pictures in one process, several at once.
#pragma once

#include "api/public.h"
#include "cli/batch_file.h"
#include "cli/run_flags.h"

namespace triptych::cli {

/// Answers the lines of `file` that are to do; an answer is written when it is complete. A line that cannot
/// be answered gets an error, and the rest goes on. Returns the exit code: 1 when a line failed, 130 when it
/// was interrupted.
int answer_lines(const RunFlags& flags, const api::Model& model, BatchFile& file);

}  // namespace triptych::cli
