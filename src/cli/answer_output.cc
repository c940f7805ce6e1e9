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

JsonOut logprobs_json(const api::Model& model, const api::Result& result) {
  JsonOut out = JsonOut::array();
  for (const api::SampledToken& token : result.tokens) {
    JsonOut one = token_json(model, token.id, token.logprob);
    if (!token.top.empty()) {
      one["top_logprobs"] = JsonOut::array();
      for (const api::TokenLogprob& other : token.top)
        one["top_logprobs"].push_back(token_json(model, other.id, other.logprob));
    }
    out.push_back(std::move(one));
  }
  return out;
}

void add_answer(const api::Model& model, const api::Result& result, JsonOut& out) {
  out["text"] = result.text;
  out["finish_reason"] = to_string(result.finish_reason);
  if (!result.stop_string.empty()) out["stop_string"] = result.stop_string;
  if (model.names_regions()) out["boxes"] = regions_json(result.regions);
  out["token_ids"] = result.token_ids;
}

}  // namespace

AnswerPrinter::AnswerPrinter(bool print, bool several)
    : print_(print),
      several_(several),
      is_terminal_(isatty(STDOUT_FILENO) != 0),
      start_(std::chrono::steady_clock::now()) {}

void AnswerPrinter::print(const std::string& text) const {
  const std::string shown = is_terminal_ ? printable(text) : text;
  std::fwrite(shown.data(), 1, shown.size(), stdout);
}

bool AnswerPrinter::on_token(const api::TokenEvent& event) {
  if (first_token_ms_ < 0)
    first_token_ms_ =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
  if (print_ && !several_ && !event.text.empty()) {
    print(event.text);
    std::fflush(stdout);
  }
  return !Interrupt::pending();
}

void AnswerPrinter::finish(const api::Result& result) {
  if (!print_) return;
  if (several_ && result.choices.empty()) print(result.text);
  for (std::size_t i = 0; i < result.choices.size(); ++i) {
    if (i > 0) std::fputs("\n\n", stdout);
    print(result.choices[i].text);
  }
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

JsonOut answer_json(const api::Model& model, const api::Result& result, double first_token_ms) {
  JsonOut out;
  add_answer(model, result, out);
  std::size_t n_tokens = result.choices.empty() ? result.token_ids.size() : 0;
  for (const api::Result& choice : result.choices) n_tokens += choice.token_ids.size();
  out["usage"] = {{"prompt_tokens", result.n_prompt_tokens},
                  {"reused_tokens", result.n_reused_tokens},
                  {"image_tokens", result.n_image_tokens},
                  {"cached_images", result.n_cached_media},
                  {"completion_tokens", n_tokens}};
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
  if (!result.tokens.empty()) out["logprobs"] = logprobs_json(model, result);
  for (std::size_t i = 0; i < result.choices.size(); ++i) {
    const api::Result& choice = result.choices[i];
    JsonOut one = {{"index", i}};
    add_answer(model, choice, one);
    if (choice.cumulative_logprob)
      one["cumulative_logprob"] = finite_logprob(static_cast<float>(*choice.cumulative_logprob));
    if (!choice.tokens.empty()) one["logprobs"] = logprobs_json(model, choice);
    out["choices"].push_back(std::move(one));
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
