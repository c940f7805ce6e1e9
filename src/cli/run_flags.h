// What `triptych run` was asked for.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/public.h"
#include "cli/constraint_flags.h"
#include "cli/flags.h"
#include "cli/picture_file.h"
#include "cli/prefix_cache_flags.h"
#include "cli/profile_output.h"
#include "cli/prompt_flags.h"
#include "cli/scheduler_flags.h"
#include "cli/speculation_flags.h"
#include "cli/visual_cache_flags.h"

namespace triptych::cli {

struct MediaArgument {
  bool is_video = false;
  std::string name;
};

struct RunFlags {
  ModelFlags model;
  ContextFlags context;
  VisualCacheFlags visual_cache;
  bool replay_steps = true;
  SpeculationFlags speculation;
  SamplingFlags sampling;
  ConstraintFlags constraint;
  MediaFlags media;
  PictureFlags pictures;
  ProfileFlags profile;
  std::vector<MediaArgument> media_files;  // in the order of the command line
  std::vector<std::string> images, videos;
  api::VideoOptions video;
  PromptFlags prompt;
  std::string system;
  std::optional<std::string> draw;
  bool interactive = false;
  std::pair<std::string, std::string> jsonl;  // IN, OUT; empty: not given
  int batch = 8;
  SchedulerFlags scheduler;
  PrefixCacheFlags prefix_cache;  // without it in chats
  bool json = false;

  bool is_batch() const noexcept { return !jsonl.first.empty(); }

  void add_to(CLI::App& app);
  /// To be called when the command line was parsed: fills media_files.
  void take_media_order(const CLI::App& app);
  /// What can be known before the model is loaded; sets `interactive` when there is no question. Throws
  /// Error(kInvalidArgument).
  void check();
  /// What needs the model.
  void check(const api::Model& model) const;
  /// What the command reads, for check_output.
  std::vector<NamedPath> inputs() const;
  api::EngineOptions engine_options() const;
};

}  // namespace triptych::cli
