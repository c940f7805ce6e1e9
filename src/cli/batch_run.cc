#include "cli/batch_run.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/progress.h"
#include "cli/answer_output.h"
#include "cli/commands.h"
#include "cli/error_output.h"
#include "cli/interrupt.h"

namespace triptych::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMaxPriority = 1'000'000;
// One name, or a list of names.
std::vector<std::string> names_at(const JsonView& line, const char* one, const char* many) {
  std::vector<std::string> out;
  if (const auto name = line.find(one)) out.push_back(name->as_string());
  if (const auto list = line.find(many))
    for (const JsonView& name : list->items()) out.push_back(name.as_string());
  return out;
}

void refuse_unknown_members(const JsonView& line) {
  static const std::set<std::string, std::less<>> kMembers = {"id",
                                                              "prompt",
                                                              "system",
                                                              "image",
                                                              "images",
                                                              "video",
                                                              "videos",
                                                              "max_tokens",
                                                              "seed",
                                                              "priority",
                                                              "tenant",
                                                              "timeout_ms",
                                                              "image_tokens_keep",
                                                              "image_tokens_selection"};
  for (const auto& [name, value] : line.members()) {
    if (kMembers.contains(name)) continue;
    std::string known;
    for (const std::string& member : kMembers) known.append(known.empty() ? "" : ", ").append(member);
    fail(ErrorCode::kInvalidFile, "{}: unknown member \"{}\"; there are {}", line.path(), name, known);
  }
}

class BatchRun {
 public:
  BatchRun(const RunFlags& flags, const api::Model& model, BatchFile& file)
      : flags_(flags),
        model_(model),
        file_(file),
        engine_(model, engine_options(flags, model)),
        sampling_(flags.constraint.over(flags.sampling.over(model.default_sampling()))) {
    model.check_sampling(sampling_);  // what is wrong for all lines is no line's error
    if (!flags.model.quiet) bar_.emplace("questions", static_cast<std::int64_t>(file.n_lines()));
  }

  int run() {
    const auto start = Clock::now();
    const std::vector<BatchLine>& lines = file_.to_do();
    const std::size_t n_before = file_.n_lines() - lines.size();
    for (std::size_t next = 0; !Interrupt::pending() && (next < lines.size() || engine_.has_work());) {
      while (next < lines.size() && running_.size() < static_cast<std::size_t>(flags_.batch) &&
             !Interrupt::pending())
        submit(lines[next++]);
      if (engine_.has_work()) step();
      if (bar_) bar_->update(static_cast<std::int64_t>(n_before + n_answered_ + n_failed_));
    }
    bar_.reset();
    file_.finish();
    say_summary(n_before, std::chrono::duration<double>(Clock::now() - start).count());
    if (Interrupt::take()) return kExitInterrupted;
    return n_failed_ > 0 ? kExitCheckFailed : kExitOk;
  }

 private:
  struct Running {
    const BatchLine* line = nullptr;
    Clock::time_point start;
    double first_token_ms = -1;
  };

  static api::EngineOptions engine_options(const RunFlags& flags, const api::Model& model) {
    api::EngineOptions out = flags.engine_options();
    const std::int64_t context =
        out.max_context_tokens > 0 ? out.max_context_tokens : model.max_context_tokens();
    out.max_sequences = flags.batch;
    out.kv_cache_tokens = context * flags.batch;  // memory is taken for what is written
    return out;
  }

  std::string path_of(const std::string& name) const {
    if (name == "-") fail(ErrorCode::kInvalidArgument, "a picture of --jsonl cannot be on stdin");
    return (file_.folder() / name).string();
  }

  api::Request request_of(const BatchLine& line) const {
    if (!line.problem.empty()) fail(ErrorCode::kInvalidFile, "{}", line.problem);
    const JsonView view(line.content, fmt::format("{}:{}", flags_.jsonl.first, line.number));
    refuse_unknown_members(view);
    api::Request out;
    const auto system = view.find("system");
    const std::string system_text = system ? system->as_string() : flags_.system;
    if (!system_text.empty()) out.messages.push_back(api::ChatMessage::system(system_text));
    api::ChatMessage message("user");
    const std::string prompt = view.at("prompt").as_string();
    for (const std::string& name : names_at(view, "image", "images"))
      message.add_image(open_picture(path_of(name), flags_.pictures));
    for (const std::string& name : names_at(view, "video", "videos")) {
      model_.check_takes_videos();
      message.add_video(api::VideoFile::open(path_of(name)).read(model_, flags_.video));
    }
    message.add_text(prompt);
    out.messages.push_back(std::move(message));
    api::SamplingParams sampling = sampling_;
    if (const auto n = view.find("max_tokens")) sampling.max_tokens = n->as_int(1, std::int64_t{1} << 40);
    if (const auto seed = view.find("seed")) sampling.seed = static_cast<std::uint64_t>(seed->as_int(0));
    out.sampling = std::move(sampling);
    if (const auto priority = view.find("priority"))
      out.priority = static_cast<int>(priority->as_int(-kMaxPriority, kMaxPriority));
    if (const auto tenant = view.find("tenant")) out.tenant = tenant->as_string();
    if (const auto timeout = view.find("timeout_ms"))
      out.timeout_ms = static_cast<double>(timeout->as_int(1));
    out.media_options = flags_.media.options;
    if (const auto keep = view.find("image_tokens_keep"))
      out.media_options.image_tokens_keep = keep->as_double();
    if (const auto word = view.find("image_tokens_selection"))
      out.media_options.image_tokens_selection = word->as_string();
    return out;
  }

  void submit(const BatchLine& line) {
    try {
      const auto start = Clock::now();
      const api::RequestId id = engine_.submit(request_of(line));
      running_[id] = {&line, start};
    } catch (const Error& error) {
      write_error(line, failure_of(error));
    } catch (const api::Error& error) {
      write_error(line, failure_of(error));
    }
  }

  void step() {
    for (const api::StepOutput& output : engine_.step()) {
      const auto found = running_.find(output.request_id);
      if (found == running_.end()) continue;
      Running& running = found->second;
      if (running.first_token_ms < 0 && !output.events.empty())
        running.first_token_ms =
            std::chrono::duration<double, std::milli>(Clock::now() - running.start).count();
      if (!output.finish_reason) continue;
      const std::optional<api::Result> result = engine_.take_result(output.request_id);
      if (!result) continue;  // others of its choices go on
      if (!result->error) {
        JsonOut out = BatchFile::answer_to(*running.line);
        const JsonOut content = answer_json(model_, *result, running.first_token_ms);
        for (const auto& [key, value] : content.items()) out[key] = value;
        file_.write(out);
        ++n_answered_;
      } else {
        write_error(*running.line, failure_of(*result->error));
      }
      running_.erase(found);
    }
  }

  void write_error(const BatchLine& line, const Failure& failure) {
    JsonOut out = BatchFile::answer_to(line);
    out["error"] = error_json(failure);
    file_.write(out);
    ++n_failed_;
  }

  void say_summary(std::size_t n_before, double seconds) const {
    const std::size_t n_left = file_.to_do().size() - n_answered_ - n_failed_;
    if (flags_.json && flags_.jsonl.second != "-") {
      JsonOut out = json_document("run_batch");
      out["lines"] = file_.n_lines();
      out["answered"] = n_answered_;
      out["failed"] = n_failed_;
      out["answered_before"] = n_before;
      out["left"] = n_left;
      out["seconds"] = seconds;
      print_json(out);
    } else if (!flags_.model.quiet && (n_failed_ > 0 || n_left > 0 || isatty(STDERR_FILENO) != 0)) {
      std::fprintf(stderr, "%zu answered, %zu failed, %zu were there, %zu left; %.1f s\n", n_answered_,
                   n_failed_, n_before, n_left, seconds);
    }
  }

  const RunFlags& flags_;
  const api::Model& model_;
  BatchFile& file_;
  api::Engine engine_;
  api::SamplingParams sampling_;  // of every line, but for what it says itself
  std::optional<ProgressBar> bar_;
  std::map<api::RequestId, Running> running_;
  std::size_t n_answered_ = 0;
  std::size_t n_failed_ = 0;
};

}  // namespace

int answer_lines(const RunFlags& flags, const api::Model& model, BatchFile& file) {
  return BatchRun(flags, model, file).run();
}

}  // namespace triptych::cli
