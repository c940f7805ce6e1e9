#include "cli/chat.h"

#include <cstdio>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/answer_output.h"
#include "cli/commands.h"
#include "cli/error_output.h"
#include "cli/interrupt.h"
#include "cli/line_completion.h"
#include "cli/line_reader.h"
#include "cli/output_file.h"

namespace triptych::cli {
namespace {

constexpr const char* kChatHelp =
    "  /image FILE   a picture for the next message; may be repeated; Tab completes names\n"
    "  /video PATH   a video for the next message: a folder of frames, a GIF or WebP\n"
    "  /reset        forget the conversation\n"
    "  /save FILE    write the conversation, its pictures and what was computed of them to a file\n"
    "  /load FILE    go on with a saved conversation instead of this one\n"
    "  /help         this list\n"
    "  /quit         end (also Ctrl-D)\n"
    "A line that ends with \\ goes on in the next, and pasted lines are one message. Ctrl-C cancels an "
    "answer. "
    "A blank\nbefore / makes it text.\n";

constexpr const char* kHint = "/reset begins a new conversation";

void show(const RunFlags& flags, const api::Model& model, const api::Result& result, AnswerPrinter& printer) {
  printer.finish(result);
  if (flags.json) {
    JsonOut out = json_document("run", answer_json(model, result, printer.first_token_ms()));
    if (flags.profile.profile) out["profile"] = profile_json();
    print_json(out, !flags.interactive);
    return;
  }
  if (flags.sampling.n_logprobs && result.choices.empty())
    std::fputs(logprob_table(model, result).c_str(), stdout);
  if (flags.sampling.n_logprobs)
    for (const api::Result& choice : result.choices) std::fputs(logprob_table(model, choice).c_str(), stdout);
  if (flags.model.verbosity > 0)
    std::fprintf(stderr, "%s\n", answer_summary(result, printer.first_token_ms()).c_str());
}

void use_session_file(const std::string& verb, const std::string& name, const RunFlags& flags,
                      ChatSession& session, bool is_terminal) {
  if (verb == "/save") check_output(verb, name, flags.inputs());
  const std::int64_t n_tokens = verb == "/save" ? session.save(name) : session.load(name);
  if (!is_terminal) return;
  std::printf(verb == "/save" ? "%zu messages saved, %lld tokens of them computed\n"
                              : "%zu messages, %lld tokens of them need not be computed again\n",
              session.n_messages(), static_cast<long long>(n_tokens));
  std::fflush(stdout);
}

// A line of the conversation that begins with '/'. False: end.
bool obey(const std::string& line, const RunFlags& flags, const api::Model& model, ChatSession& session,
          bool is_terminal) {
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
  } else if (verb == "/image" || verb == "/video" || verb == "/save" || verb == "/load") {
    if (rest.empty()) fail(ErrorCode::kInvalidArgument, "{} needs a file name", verb);
    if (rest == "-") fail(ErrorCode::kInvalidArgument, "{} -: stdin holds the conversation", verb);
    const char* home = std::getenv("HOME");
    const std::string name = file_argument(rest, home != nullptr ? home : "");
    if (verb == "/save" || verb == "/load") {
      use_session_file(verb, name, flags, session, is_terminal);
      return true;
    }
    if (verb == "/video") {
      model.check_takes_videos();
      session.add_media(api::VideoFile::open(name).read(model, flags.video));
    } else {
      session.add_media(open_picture(name, flags.pictures));
    }
    if (is_terminal)
      std::printf(session.n_pending() == 1 ? "%zu picture or video for the next message\n"
                                           : "%zu pictures or videos for the next message\n",
                  session.n_pending());
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

// A command is one line; pasted text that begins with '/' is a message.
bool is_command(const std::string& text) {
  return text.front() == '/' && text.find('\n') == std::string::npos;
}

}  // namespace

Answered answer(const RunFlags& flags, const api::Model& model, ChatSession& session,
                const std::string& text) {
  AnswerPrinter printer(!flags.json, flags.sampling.n_sequences() > 1);
  api::Result result =
      session.ask(text, [&](const api::TokenEvent& event) { return printer.on_token(event); });
  show(flags, model, result, printer);
  const bool is_full = result.finish_reason == api::FinishReason::kLength &&
                       result.n_prompt_tokens + static_cast<std::int64_t>(result.token_ids.size()) >=
                           session.max_context_tokens();
  return {Interrupt::take(), std::move(result.regions), is_full};
}

int chat(const RunFlags& flags, const api::Model& model, ChatSession& session) {
  LineReader reader(default_history_file());
  if (reader.is_terminal())
    std::printf("%s on %s. /help lists the commands.\n", model.architecture().c_str(),
                flags.model.model.c_str());
  int exit_code = kExitOk;
  const auto refuse = [&](const Failure& failure) {
    if (failure.code == to_string(ErrorCode::kInternal)) return false;
    report_error(failure, flags.json);
    if (!reader.is_terminal()) exit_code = kExitBadInput;  // a script goes on, but does not pass
    if (failure.code == to_string(ErrorCode::kContextLength) && reader.is_terminal())
      std::fprintf(stderr, "%s\n", kHint);
    return true;
  };
  std::string text;
  for (;;) {
    const LineReader::Result result = read_message(reader, text);
    if (result == LineReader::Result::kEnd) break;
    if (result == LineReader::Result::kInterrupted) {
      if (!reader.is_terminal()) return kExitInterrupted;
      continue;
    }
    if (text.find_first_not_of(" \n") == std::string::npos) continue;
    try {
      if (is_command(text)) {
        if (!obey(text, flags, model, session, reader.is_terminal())) break;
        continue;
      }
      const Answered answered = answer(flags, model, session, text.substr(text.find_first_not_of(' ')));
      if (answered.interrupted && !reader.is_terminal()) return kExitInterrupted;
      if (answered.context_is_full && reader.is_terminal())
        std::fprintf(stderr, "The context of %lld tokens is full; %s.\n",
                     static_cast<long long>(session.max_context_tokens()), kHint);
    } catch (const Error& error) {
      if (!refuse(failure_of(error))) throw;
    } catch (const api::Error& error) {
      if (!refuse(failure_of(error))) throw;
    }
  }
  if (reader.is_terminal()) std::fputs("\n", stdout);
  return exit_code;
}

}  // namespace triptych::cli
