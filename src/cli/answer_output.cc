#include "cli/answer_output.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "cli/interrupt.h"
#include "report/text_table.h"

namespace triptych::cli {
namespace {

// JSON has no infinity.
double finite_logprob(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0;
}

double tokens_per_s(std::size_t n_tokens, double ms) {
  return ms > 0 && n_tokens > 1 ? static_cast<double>(n_tokens - 1) * 1000.0 / ms : 0.0;
}

JsonOut token_json(const api::Model& model, std::int32_t id, float logprob) {
  return {{"id", id}, {"token", model.token(id)}, {"logprob", finite_logprob(logprob)}};
}

}  // namespace

AnswerPrinter::AnswerPrinter(bool stream)
    : stream_(stream), is_terminal_(isatty(STDOUT_FILENO) != 0), start_(std::chrono::steady_clock::now()) {}

bool AnswerPrinter::on_token(const api::TokenEvent& event) {
  if (first_token_ms_ < 0)
    first_token_ms_ =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
  if (stream_ && !event.text.empty()) {
    const std::string text = is_terminal_ ? printable(event.text) : event.text;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  return !Interrupt::pending();
}

void AnswerPrinter::finish() {
  if (!stream_) return;
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

JsonOut answer_json(const api::Model& model, const api::Result& result, double first_token_ms) {
  JsonOut out;
  out["text"] = result.text;
  out["finish_reason"] = to_string(result.finish_reason);
  if (!result.stop_string.empty()) out["stop_string"] = result.stop_string;
  if (model.names_regions()) out["boxes"] = regions_json(result.regions);
  out["token_ids"] = result.token_ids;
  out["usage"] = {{"prompt_tokens", result.n_prompt_tokens},
                  {"reused_tokens", result.n_reused_tokens},
                  {"image_tokens", result.n_image_tokens},
                  {"completion_tokens", result.token_ids.size()}};
  if (result.n_drafted_tokens > 0) {
    out["usage"]["accepted_prediction_tokens"] = result.n_accepted_tokens;
    out["usage"]["rejected_prediction_tokens"] = result.n_drafted_tokens - result.n_accepted_tokens;
  }
  const api::Timings& t = result.timings;
  out["timings"] = {{"first_token_ms", first_token_ms},
                    {"image_decode_ms", t.image_decode_ms},
                    {"preprocess_ms", t.preprocess_ms},
                    {"queue_ms", t.queue_ms},
                    {"encode_ms", t.encode_ms},
                    {"prefill_ms", t.prefill_ms},
                    {"decode_ms", t.decode_ms},
                    {"detokenize_ms", t.detokenize_ms},
                    {"inter_token_ms", t.inter_token_ms},
                    {"total_ms", t.total_ms},
                    {"decode_tokens_per_s", tokens_per_s(result.token_ids.size(), t.decode_ms)}};
  if (!result.tokens.empty()) {
    JsonOut& list = out["logprobs"] = JsonOut::array();
    for (const api::SampledToken& token : result.tokens) {
      JsonOut one = token_json(model, token.id, token.logprob);
      if (!token.top.empty()) {
        one["top_logprobs"] = JsonOut::array();
        for (const api::TokenLogprob& other : token.top)
          one["top_logprobs"].push_back(token_json(model, other.id, other.logprob));
      }
      list.push_back(std::move(one));
    }
  }
  return out;
}

JsonOut regions_json(std::span<const api::Region> regions) {
  JsonOut out = JsonOut::array();
  for (const api::Region& region : regions) {
    JsonOut thousandths = JsonOut::array(), pixels = JsonOut::array();
    for (const api::PointPerMille& p : region.points_1000) {
      thousandths.push_back(p.x);
      thousandths.push_back(p.y);
    }
    for (const api::PointPx& p : region.points_px) {
      pixels.push_back(p.x);
      pixels.push_back(p.y);
    }
    out.push_back({{"type", to_string(region.kind)},
                   {"label", region.label},
                   {"image", region.media_index},
                   {"thousandths", std::move(thousandths)},
                   {"pixels", std::move(pixels)}});
  }
  return out;
}

std::string region_legend(std::span<const api::Region> regions) {
  std::string out;
  for (std::size_t i = 0; i < regions.size(); ++i) {
    out += fmt::format("{} {}", i + 1, to_string(regions[i].kind));
    if (!regions[i].label.empty()) out += fmt::format(" \"{}\"", one_line(regions[i].label));
    for (const api::PointPx& p : regions[i].points_px) out += fmt::format(" ({}, {})", p.x, p.y);
    out += '\n';
  }
  return out;
}

std::string answer_summary(const api::Result& result, double first_token_ms) {
  const api::Timings& t = result.timings;
  std::string drafted;
  if (result.n_drafted_tokens > 0)
    drafted =
        fmt::format(", {} of {} drafted tokens right", result.n_accepted_tokens, result.n_drafted_tokens);
  return fmt::format(
      "{} prompt tokens ({} of pictures), {} answer tokens, {}; first token {}, pictures {}, prompt {}, "
      "answer {} ({:.1f} tokens/s){}",
      result.n_prompt_tokens, result.n_image_tokens, result.token_ids.size(), to_string(result.finish_reason),
      format_ms(std::max(first_token_ms, 0.0)), format_ms(t.encode_ms), format_ms(t.prefill_ms),
      format_ms(t.decode_ms), tokens_per_s(result.token_ids.size(), t.decode_ms), drafted);
}

std::string logprob_table(const api::Model& model, const api::Result& result) {
  TextTable table({{"token", Align::kLeft}, {"id"}, {"logprob"}, {"likeliest", Align::kLeft}});
  const auto name = [&](std::int32_t id) { return one_line(model.token(id)); };
  for (const api::SampledToken& token : result.tokens) {
    std::string others;
    for (const api::TokenLogprob& other : token.top)
      others += fmt::format("{}{} {:.3f}", others.empty() ? "" : ", ", name(other.id),
                            finite_logprob(other.logprob));
    table.add_row({name(token.id), std::to_string(token.id),
                   fmt::format("{:.4f}", finite_logprob(token.logprob)), others});
  }
  return table.render();
}

}  // namespace triptych::cli
