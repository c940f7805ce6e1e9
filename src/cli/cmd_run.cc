// triptych run: one question, a conversation line by line, or a file of questions.
#include <cstdio>
#include <variant>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "api/public.h"
#include "base/error.h"
#include "cli/answer_output.h"
#include "cli/batch_run.h"
#include "cli/chat.h"
#include "cli/chat_session.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/output_file.h"
#include "cli/run_flags.h"
#include "report/text_table.h"

namespace triptych::cli {
namespace {

// Draws what the answer names on the picture it lies in.
int draw(const RunFlags& flags, const ChatSession& session, const std::vector<api::Region>& regions) {
  if (regions.empty()) {
    std::fprintf(stderr, "triptych: error: --draw: the answer names no box, %s is not written\n",
                 one_line(*flags.draw).c_str());
    return kExitCheckFailed;
  }
  const api::Image picture = session.picture(regions.front().media_index).with_regions(regions);
  write_output("--draw", *flags.draw, picture.encode_png());
  std::fputs(region_legend(regions).c_str(), stderr);
  return kExitOk;
}

int answer_once(const RunFlags& flags, const api::Model& model, ChatSession& session,
                const std::string& prompt) {
  const Answered answered = answer(flags, model, session, prompt);
  if (answered.interrupted) return kExitInterrupted;
  return !flags.draw ? kExitOk : draw(flags, session, answered.regions);
}

int run_batch(const RunFlags& flags) {
  BatchFile file(flags.jsonl.first, flags.jsonl.second);  // before the time of a load
  const api::Model model = flags.model.open_model();
  flags.check(model);
  const Interrupt interrupt;
  return answer_lines(flags, model, file);
}

int run(RunFlags flags) {
  flags.check();
  flags.profile.start(flags.inputs());
  flags.constraint.read_files();  // before the time of a load
  if (flags.is_batch()) {
    const int exit_code = run_batch(flags);
    flags.profile.finish();
    return exit_code;
  }
  // Files first: a wrong name should not cost the time of a load. Which frames are decoded, the model says.
  const std::string prompt = flags.interactive ? std::string() : flags.prompt.read();
  std::vector<std::variant<api::Image, api::VideoFile>> files;
  for (const MediaArgument& file : flags.media_files) {
    if (file.is_video) {
      files.emplace_back(api::VideoFile::open(file.name));
    } else {
      files.emplace_back(open_picture(file.name, flags.pictures));
    }
  }
  const api::Model model = flags.model.open_model();
  flags.check(model);
  ChatSession session(model,
                      {.engine = flags.engine_options(),
                       .sampling = flags.constraint.over(flags.sampling.over(model.default_sampling())),
                       .media = flags.media.options,
                       .system = flags.system});
  for (const auto& file : files) {
    if (const auto* video = std::get_if<api::VideoFile>(&file)) {
      session.add_media(video->read(model, flags.video));
    } else {
      session.add_media(std::get<api::Image>(file));
    }
  }
  const Interrupt interrupt;
  const int exit_code =
      flags.interactive ? chat(flags, model, session) : answer_once(flags, model, session, prompt);
  flags.profile.finish();
  return exit_code;
}

}  // namespace

void add_run_command(CLI::App& program, Action& action) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App& app = *program.add_subcommand("run", "Answer a question about pictures, or chat");
  flags->add_to(app);
  app.footer(
      "Examples:\n"
      "  triptych run MODEL --image photo.jpg --prompt \"What is in the picture?\"\n"
      "  triptych run MODEL --image a.png --image b.png --prompt \"Compare them.\" --max-tokens 64\n"
      "  triptych run MODEL --video clip.gif --fps 4 --prompt \"What happens?\"\n"
      "  triptych run MODEL --video frames/ --video-fps 30 --max-frames 16 --prompt \"What happens?\"\n"
      "  curl -s https://example.org/x.jpg | triptych run MODEL --image - --prompt \"Describe it.\" --json\n"
      "  triptych run MODEL --image page.png --prompt-file question.txt\n"
      "  triptych run MODEL --jsonl questions.jsonl answers.jsonl --max-tokens 64\n"
      "  triptych run MODEL --image cat.jpg --prompt \"Box the cat.\" --draw boxes.png\n"
      "  triptych run MODEL -i --temperature 0.7 --seed 1");
  app.callback([flags, &app, &action] {
    flags->take_media_order(app);
    action = [flags] { return run(*flags); };
  });
}

}  // namespace triptych::cli
