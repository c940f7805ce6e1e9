// triptych run: one question, or a conversation line by line.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <variant>

#include <CLI/CLI.hpp>

#include "api/public.h"
#include "base/error.h"
#include "cli/answer_output.h"
#include "cli/chat_session.h"
#include "cli/commands.h"
#include "cli/constraint_flags.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/line_reader.h"
#include "cli/output_file.h"
#include "cli/picture_file.h"
#include "cli/profile_output.h"
#include "report/text_table.h"

namespace triptych::cli {
namespace {

constexpr const char* kChatHelp =
    "  /image FILE   a picture for the next message; may be repeated\n"
    "  /video PATH   a video for the next message: a folder of frames, a GIF or WebP\n"
    "  /reset        forget the conversation\n"
    "  /help         this list\n"
    "  /quit         end (also Ctrl-D)\n"
    "A line that ends with \\ goes on in the next. Ctrl-C cancels an answer. A blank before / makes it "
    "text.\n";

struct MediaArgument {
  bool is_video = false;
  std::string name;
};

struct RunFlags {
  ModelFlags model;
  ContextFlags context;
  bool replay_steps = true;
  SamplingFlags sampling;
  ConstraintFlags constraint;
  MediaFlags media;
  ProfileFlags profile;
  std::vector<MediaArgument> media_files;  // in the order of the command line
  std::vector<std::string> images, videos;
  api::VideoOptions video;
  std::optional<std::string> prompt;
  std::string system;
  std::optional<std::string> draw;
  bool interactive = false;
  bool json = false;
};

api::Image open_picture(const std::string& name) {
  return name == "-" ? api::Image::decode(read_stdin_picture(), "image on stdin")
                     : api::Image::from_file(name);
}

void show(const RunFlags& flags, const api::Model& model, const api::Result& result, AnswerPrinter& printer) {
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

struct Answered {
  bool interrupted = false;
  std::vector<api::Region> regions;
};

Answered answer(const RunFlags& flags, const api::Model& model, ChatSession& session,
                const std::string& text) {
  AnswerPrinter printer(!flags.json);
  api::Result result =
      session.ask(text, [&](const api::TokenEvent& event) { return printer.on_token(event); });
  show(flags, model, result, printer);
  return {Interrupt::take(), std::move(result.regions)};
}

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

int answer_once(const RunFlags& flags, const api::Model& model, ChatSession& session) {
  const Answered answered = answer(flags, model, session, *flags.prompt);
  if (answered.interrupted) return kExitInterrupted;
  return !flags.draw ? kExitOk : draw(flags, session, answered.regions);
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
  } else if (verb == "/image" || verb == "/video") {
    if (rest.empty()) fail(ErrorCode::kInvalidArgument, "{} needs a file name", verb);
    if (verb == "/video") {
      model.check_takes_videos();
      session.add_media(api::VideoFile::open(rest).read(model, flags.video));
    } else {
      if (rest == "-") fail(ErrorCode::kInvalidArgument, "/image -: stdin holds the conversation");
      session.add_media(open_picture(rest));
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

int chat(const RunFlags& flags, const api::Model& model, ChatSession& session) {
  LineReader reader(default_history_file());
  if (reader.is_terminal())
    std::printf("%s on %s. /help lists the commands.\n", model.architecture().c_str(),
                flags.model.model.c_str());
  int exit_code = kExitOk;
  const auto refuse = [&](const char* message) {
    std::fprintf(stderr, "triptych: error: %s\n", one_line(message).c_str());
    if (!reader.is_terminal()) exit_code = kExitBadInput;  // a script goes on, but does not pass
  };
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
        if (!obey(text, flags, model, session, reader.is_terminal())) break;
      } else if (answer(flags, model, session, text.substr(text.find_first_not_of(' '))).interrupted &&
                 !reader.is_terminal()) {
        return kExitInterrupted;
      }
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal) throw;
      refuse(error.what());
    } catch (const api::Error& error) {
      if (error.code() == api::ErrorCode::kInternal) throw;
      refuse(error.what());
    }
  }
  if (reader.is_terminal()) std::fputs("\n", stdout);
  return exit_code;
}

// The order in which --image and --video were given, each with its argument.
std::vector<MediaArgument> media_in_order(const CLI::App& app, const RunFlags& flags) {
  std::vector<MediaArgument> out;
  std::size_t n_images = 0;
  std::size_t n_videos = 0;
  for (const CLI::Option* option : app.parse_order()) {
    if (option->check_lname("image") && n_images < flags.images.size())
      out.push_back({false, flags.images[n_images++]});
    if (option->check_lname("video") && n_videos < flags.videos.size())
      out.push_back({true, flags.videos[n_videos++]});
  }
  return out;
}

std::vector<NamedPath> inputs_of(const RunFlags& flags) {
  std::vector<NamedPath> out = flags.model.inputs();
  for (const MediaArgument& file : flags.media_files)
    out.push_back({file.is_video ? "--video" : "--image", file.name});
  return out;
}

// What can be known before the model is loaded.
void check_draw(const RunFlags& flags) {
  if (!flags.draw) return;
  if (flags.interactive) fail(ErrorCode::kInvalidArgument, "--draw needs --prompt: it is for one answer");
  if (flags.images.empty()) fail(ErrorCode::kInvalidArgument, "--draw needs a picture to draw on (--image)");
  std::vector<NamedPath> others = inputs_of(flags);
  if (flags.profile.trace_out) others.push_back({"--trace-out", *flags.profile.trace_out});
  check_output("--draw", *flags.draw, others);
}

// The first flag given that speaks of videos; null: none.
const char* video_flag(const api::VideoOptions& options) {
  return options.frames_per_s          ? "--fps"
         : options.max_frames          ? "--max-frames"
         : options.source_frames_per_s ? "--video-fps"
                                       : nullptr;
}

// In a chat a video may come later.
void check_video_flags(const RunFlags& flags) {
  const char* flag = video_flag(flags.video);
  if (flag != nullptr && flags.videos.empty() && !flags.interactive)
    fail(ErrorCode::kInvalidArgument, "{} needs a video to sample (--video)", flag);
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
  check_draw(flags);
  check_video_flags(flags);
  flags.profile.start(inputs_of(flags));
  // Files first: a wrong name should not cost the time of a load. Which frames are decoded, the model says.
  std::vector<std::variant<api::Image, api::VideoFile>> files;
  for (const MediaArgument& file : flags.media_files) {
    if (file.is_video) {
      files.emplace_back(api::VideoFile::open(file.name));
    } else {
      files.emplace_back(open_picture(file.name));
    }
  }
  const api::Model model = flags.model.open_model();
  flags.media.check(model.architecture(), model.takes_pixel_limits());
  flags.context.check(model.max_context_tokens());
  if (const char* flag = video_flag(flags.video); flag != nullptr && !model.takes_videos())
    fail(ErrorCode::kUnsupported, "{}: {} does not take videos", flag, model.architecture());
  if (flags.draw && !model.names_regions())
    fail(ErrorCode::kUnsupported, "--draw: answers of {} name no boxes", model.architecture());
  ChatSession session(model,
                      {.engine = {.max_context_tokens = flags.context.ctx_size_tokens,
                                  .kv_cache_dtype = flags.context.kv_cache_dtype,
                                  .replay_steps = flags.replay_steps},
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
  const int exit_code = flags.interactive ? chat(flags, model, session) : answer_once(flags, model, session);
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
  app.add_option("--video", flags->videos,
                 "A video: a folder of frames in the order of their names, an animated GIF or WebP, or one "
                 "picture; may be repeated; pictures and videos keep the order given")
      ->expected(1)
      ->take_all()
      ->type_name("PATH");
  app.add_option("--fps", flags->video.frames_per_s,
                 "Frames a second to take of a video [the model's, 2 as a rule]")
      ->check(CLI::Range(1e-6, 1e6).description(""))
      ->type_name("F");
  app.add_option("--max-frames", flags->video.max_frames, "Most frames to take of a video [the model's]")
      ->check(CLI::Range(1, 1 << 20).description(""))
      ->type_name("N");
  app.add_option(
         "--video-fps", flags->video.source_frames_per_s,
         "Frames a second that a folder's frames were taken at, or an animation plays at instead of its "
         "own delays [a folder: all frames are taken, as sampled already]")
      ->check(CLI::Range(1e-6, 1e6).description(""))
      ->type_name("F");
  app.add_option("--prompt,-p", flags->prompt, "The question; without it a chat begins")->type_name("TEXT");
  app.add_flag("--interactive,-i", flags->interactive, "Chat: read messages line by line");
  app.add_option("--system", flags->system, "System prompt")->type_name("TEXT");
  flags->sampling.add_to(app);
  flags->constraint.add_to(app);
  flags->media.add_to(app);
  flags->context.add_to(app);
  add_enforce_eager(app, flags->replay_steps);
  app.add_flag("--json", flags->json,
               "Print one JSON object (in a chat one line per answer) instead of text");
  app.add_option("--draw", flags->draw,
                 "Draw the boxes and points that the answer names on its picture, as PNG")
      ->type_name("FILE");
  flags->profile.add_to(app);
  app.footer(
      "Examples:\n"
      "  triptych run MODEL --image photo.jpg --prompt \"What is in the picture?\"\n"
      "  triptych run MODEL --image a.png --image b.png --prompt \"Compare them.\" --max-tokens 64\n"
      "  triptych run MODEL --video clip.gif --fps 4 --prompt \"What happens?\"\n"
      "  triptych run MODEL --video frames/ --video-fps 30 --max-frames 16 --prompt \"What happens?\"\n"
      "  curl -s https://example.org/x.jpg | triptych run MODEL --image - --prompt \"Describe it.\" --json\n"
      "  triptych run MODEL --image cat.jpg --prompt \"Box the cat.\" --draw boxes.png\n"
      "  triptych run MODEL -i --temperature 0.7 --seed 1");
  app.callback([flags, &app, &action] {
    flags->media_files = media_in_order(app, *flags);
    action = [flags] { return run(*flags); };
  });
}

}  // namespace triptych::cli
