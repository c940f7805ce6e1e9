// triptych run: one question, or a conversation line by line.
#include <unistd.h>

#include <cstdio>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/answer_output.h"
#include "cli/chat_session.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/line_reader.h"
#include "cli/picture_file.h"
#include "cli/profile_output.h"
#include "cli/text_table.h"

namespace triptych::cli {
namespace {

constexpr const char* kChatHelp =
    "  /image FILE   a picture for the next message; may be repeated\n"
    "  /reset        forget the conversation\n"
    "  /help         this list\n"
    "  /quit         end (also Ctrl-D)\n"
    "A line that ends with \\ goes on in the next. Ctrl-C cancels an answer. A blank before / makes it "
    "text.\n";

struct RunFlags {
  ModelFlags model;
  ContextFlags context;
  SamplingFlags sampling;
  MediaFlags media;
  ProfileFlags profile;
  std::vector<std::string> images;
  std::optional<std::string> prompt;
  std::string system;
  bool interactive = false;
  bool json = false;
};

void show(const RunFlags& flags, const LoadedModel& model, const GenerationResult& result,
          AnswerPrinter& printer) {
  printer.finish();
  if (flags.json) {
    JsonOut out = answer_json(model, result, printer.first_token_ms());
    if (flags.profile.profile) out["profile"] = profile_json();
    print_json(out, !flags.interactive);
    return;
  }
  if (flags.sampling.n_logprobs) std::fputs(logprob_table(model, result).c_str(), stdout);
  if (flags.model.verbosity > 0)
    std::fprintf(stderr, "%s\n", answer_summary(result, printer.first_token_ms()).c_str());
}

// True when it ran to its end.
bool answer(const RunFlags& flags, const LoadedModel& model, ChatSession& session, const std::string& text) {
  AnswerPrinter printer(!flags.json);
  const GenerationResult result =
      session.ask(text, [&](const TokenEvent& event) { return printer.on_token(event); });
  show(flags, model, result, printer);
  return !Interrupt::take();
}

// A line of the conversation that begins with '/'. False: end.
bool obey(const std::string& line, ChatSession& session, bool is_terminal) {
  const std::size_t blank = line.find(' ');
  const std::string verb = line.substr(0, blank);
  const std::size_t from = blank == std::string::npos ? blank : line.find_first_not_of(' ', blank);
  std::string rest = from == std::string::npos ? std::string() : line.substr(from);
  while (!rest.empty() && rest.back() == ' ') rest.pop_back();
  if (verb == "/quit" || verb == "/exit") return false;
  if (verb == "/reset") {
    session.reset();
  } else if (verb == "/help") {
    std::fputs(kChatHelp, stdout);
  } else if (verb == "/image") {
    if (rest.empty()) fail(ErrorCode::kInvalidArgument, "/image needs a file name");
    if (rest == "-") fail(ErrorCode::kInvalidArgument, "/image -: stdin holds the conversation");
    session.add_picture(read_picture(rest));
    if (is_terminal)
      std::printf("%zu picture%s for the next message\n", session.n_pending(),
                  session.n_pending() > 1 ? "s" : "");
  } else {
    fail(ErrorCode::kInvalidArgument, "unknown command {}; /help lists them", verb);
  }
  std::fflush(stdout);
  return true;
}

// Text up to a line that does not end with a backslash.
LineReader::Result read_message(LineReader& reader, std::string& text) {
  text.clear();
  for (;;) {
    std::string line;
    const LineReader::Result result = reader.read(text.empty() ? "> " : ". ", line);
    if (result == LineReader::Result::kInterrupted || (result == LineReader::Result::kEnd && text.empty()))
      return result;
    text += line;
    if (result == LineReader::Result::kEnd || !text.ends_with('\\')) return LineReader::Result::kLine;
    text.back() = '\n';
  }
}

int chat(const RunFlags& flags, const LoadedModel& model, ChatSession& session) {
  LineReader reader(default_history_file());
  if (reader.is_terminal())
    std::printf("%s on %s. /help lists the commands.\n", model.info().architecture.c_str(),
                flags.model.model.c_str());
  int exit_code = kExitOk;
  std::string text;
  for (;;) {
    const LineReader::Result result = read_message(reader, text);
    if (result == LineReader::Result::kEnd) break;
    if (result == LineReader::Result::kInterrupted) {
      if (!reader.is_terminal()) return kExitInterrupted;
      continue;
    }
    if (text.find_first_not_of(' ') == std::string::npos) continue;
    try {
      if (text.front() == '/') {
        if (!obey(text, session, reader.is_terminal())) break;
      } else if (!answer(flags, model, session, text.substr(text.find_first_not_of(' '))) &&
                 !reader.is_terminal()) {
        return kExitInterrupted;
      }
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal) throw;
      std::fprintf(stderr, "triptych: error: %s\n", one_line(error.what()).c_str());
      if (!reader.is_terminal()) exit_code = kExitBadInput;  // a script goes on, but does not pass
    }
  }
  if (reader.is_terminal()) std::fputs("\n", stdout);
  return exit_code;
}

int run(RunFlags flags) {
  const bool uses_stdin = std::count(flags.images.begin(), flags.images.end(), "-") > 0;
  if (!flags.prompt) {
    if (uses_stdin)
      fail(ErrorCode::kInvalidArgument, "--image - reads the picture from stdin, so --prompt is needed");
    flags.interactive = true;
  } else if (flags.interactive) {
    fail(ErrorCode::kInvalidArgument, "--prompt and --interactive exclude each other");
  }
  if (std::count(flags.images.begin(), flags.images.end(), "-") > 1)
    fail(ErrorCode::kInvalidArgument, "--image - can be given once");
  flags.profile.start();
  // Pictures first: a wrong file name should not cost the time of a load.
  std::vector<Image> pictures;
  for (const std::string& name : flags.images) pictures.push_back(read_picture(name));
  const auto model = flags.model.open();
  ChatSession session(*model, {.engine = flags.context.engine_options(),
                               .sampling = flags.sampling.over(model->generation_defaults()),
                               .media = flags.media.options,
                               .system = flags.system});
  for (Image& picture : pictures) session.add_picture(std::move(picture));
  const Interrupt interrupt;
  const int exit_code = flags.interactive                               ? chat(flags, *model, session)
                        : answer(flags, *model, session, *flags.prompt) ? kExitOk
                                                                        : kExitInterrupted;
  flags.profile.finish();
  return exit_code;
}

}  // namespace

void add_run_command(CLI::App& program, Action& action) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App& app = *program.add_subcommand("run", "Answer a question about pictures, or chat");
  flags->model.add_to(app);
  app.add_option("--image", flags->images,
                 "A picture: PNG, JPEG, WebP, GIF, TIFF, BMP or PNM; - is stdin; may be repeated")
      ->expected(1)
      ->take_all()
      ->type_name("FILE");
  app.add_option("--prompt,-p", flags->prompt, "The question; without it a chat begins")->type_name("TEXT");
  app.add_flag("--interactive,-i", flags->interactive, "Chat: read messages line by line");
  app.add_option("--system", flags->system, "System prompt")->type_name("TEXT");
  flags->sampling.add_to(app);
  flags->media.add_to(app);
  flags->context.add_to(app);
  app.add_flag("--json", flags->json,
               "Print one JSON object (in a chat one line per answer) instead of text");
  flags->profile.add_to(app);
  app.footer(
      "Examples:\n"
      "  triptych run MODEL --image photo.jpg --prompt \"What is in the picture?\"\n"
      "  triptych run MODEL --image a.png --image b.png --prompt \"Compare them.\" --max-tokens 64\n"
      "  curl -s https://example.org/x.jpg | triptych run MODEL --image - --prompt \"Describe it.\" --json\n"
      "  triptych run MODEL -i --temperature 0.7 --seed 1");
  app.callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace triptych::cli
