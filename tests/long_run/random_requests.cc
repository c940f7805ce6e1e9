#include "long_run/random_requests.h"

#include <algorithm>
#include <array>
#include <memory>

namespace triptych::test {
namespace {

// A picture of noise; its number decides its size.
Image picture(int number) {
  constexpr std::array kSides_px = {28, 56, 84, 112};
  Image out{kSides_px[static_cast<std::size_t>(number) % 4],
            kSides_px[static_cast<std::size_t>(number) / 4 % 3],
            {}};
  std::mt19937 random(static_cast<unsigned>(number));
  out.rgb.resize(static_cast<std::size_t>(3) * static_cast<std::size_t>(out.width_px) *
                 static_cast<std::size_t>(out.height_px));
  for (std::uint8_t& value : out.rgb) value = static_cast<std::uint8_t>(random() & 0xFFU);
  return out;
}

Harm random_harm(std::mt19937_64& random) {
  if (!one_in(random, 3)) return Harm::kNone;
  constexpr std::array kHarms = {
      Harm::kCancelledByCallback, Harm::kCancelled, Harm::kCallbackThrows, Harm::kTowerThrows,
      Harm::kForwardThrows,       Harm::kBadLogits, Harm::kDeadline,       Harm::kCancelled};
  return kHarms[static_cast<std::size_t>(below(random, static_cast<int>(kHarms.size())))];
}

}  // namespace

RandomRequest random_request(std::mt19937_64& random) {
  RandomRequest out;
  out.harm = random_harm(random);
  out.harm_at = below(random, 12);
  // A few beginnings, and an end of its own.
  const int beginning = below(random, 6);
  const int n_beginning = 10 * beginning + below(random, 3) * 30;
  for (int i = 0; i < n_beginning; ++i) out.ids.push_back(1 + (beginning + i * i) % 15);
  const int n_pictures = out.harm == Harm::kTowerThrows ? 1 : std::max(0, below(random, 5) - 1);
  for (int i = 0; i < n_pictures; ++i) {
    out.ids.push_back(kPictureId);
    out.pictures.push_back(below(random, kPictures));
    for (int k = below(random, 4); k > 0; --k) out.ids.push_back(1 + below(random, 15));
  }
  if (out.harm == Harm::kTowerThrows) out.pictures[0] += kBadPicture;
  for (int i = 1 + below(random, 40); i > 0; --i) out.ids.push_back(1 + below(random, 15));
  if (out.harm == Harm::kForwardThrows) out.ids.push_back(kForwardThrowsId);
  if (out.harm == Harm::kBadLogits) out.ids.push_back(kBadLogitsId);
  if (n_pictures > 0 && one_in(random, 3)) {
    constexpr std::array kSelections = {ImageTokenSelection::kDiversity, ImageTokenSelection::kKeyNormLow,
                                        ImageTokenSelection::kKeyNormHigh, ImageTokenSelection::kAttention};
    out.image_tokens = {.keep = one_in(random, 2) ? 0.25 : 0.5,
                        .selection = kSelections[static_cast<std::size_t>(below(random, 4))]};
  }
  out.params.max_tokens = one_in(random, 8) ? 40 + below(random, 60) : 1 + below(random, 16);
  out.params.temperature = one_in(random, 2) ? 0.0F : 1.2F;
  out.params.seed = random();
  out.params.ignore_eos = true;
  out.params.n_logprobs = one_in(random, 2) ? 2 : -1;
  // Never answers: the faults are known by them.
  out.params.logit_bias = {{kForwardThrowsId, -100.0F}, {kBadLogitsId, -100.0F}};
  if (one_in(random, 6)) {
    out.params.n = 1 + below(random, 3);
    if (one_in(random, 3)) out.params.best_of = out.params.n + 1;
  }
  if (one_in(random, 8)) out.params.stop_token_ids = {1 + below(random, 15)};
  if (one_in(random, 10)) out.params.repetition_penalty = 1.2F;
  out.salt = one_in(random, 4) ? "other" : "";
  out.queue.priority = below(random, 3);
  out.queue.tenant = one_in(random, 3) ? "b" : "a";
  if (out.harm == Harm::kDeadline) out.queue.timeout_ms = 0.1 + 3.0 * below(random, 10);
  return out;
}

PreparedRequest prepare(const LoadedModel& model, const RandomRequest& request,
                        const LoadedModel::HasRows& has_rows) {
  PreparedRequest out;
  out.token_ids = request.ids;
  out.queue = request.queue;
  out.cache_salt = request.salt;
  std::vector<MediaPlan> plans;
  for (const int number : request.pictures) {
    auto frames = std::make_shared<std::vector<Image>>();
    frames->push_back(picture(number));
    MediaItem item;
    item.plan = model.model().plan_media(
        {.width_px = frames->front().width_px, .height_px = frames->front().height_px}, {});
    item.fingerprint.high = static_cast<std::uint64_t>(number) + 1;
    item.image_tokens = request.image_tokens;
    if (has_rows && has_rows(item)) {
      item.frames = std::move(frames);
    } else {
      item.pixels = model.model().preprocess(*frames, item.plan, nullptr);
    }
    plans.push_back(item.plan);
    out.media.push_back(std::move(item));
  }
  out.layout = model.model().expand_prompt(out.token_ids, plans);
  return out;
}

}  // namespace triptych::test
