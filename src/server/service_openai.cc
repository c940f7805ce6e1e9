// The routes of OpenAI's API, and vLLM's /tokenize and /detokenize.
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "server/chat_request.h"
#include "server/generation.h"
#include "server/json_text.h"
#include "server/openai_writers.h"
#include "server/service.h"

namespace triptych::server {
namespace {

OrderedJson model_json(const ModelHost& host, const std::string& name) {
  return {{"id", name},
          {"object", "model"},
          {"created", host.created_s()},
          {"owned_by", "triptych"},
          {"root", host.name()},
          {"max_model_len", const_cast<ModelHost&>(host).engine().max_context_tokens()}};
}

// One seed gives `n` different answers: the first is that of n = 1.
SamplingParams params_of_answer(const SamplingParams& params, std::size_t i) {
  SamplingParams out = params;
  if (out.seed && i > 0) *out.seed += i;
  return out;
}

void add_answers(std::vector<Generation::Answer>& out, PreparedRequest request, const SamplingParams& params,
                 int n) {
  for (int i = 1; i < n; ++i)
    out.push_back({copy_of(request), params_of_answer(params, static_cast<std::size_t>(i))});
  out.insert(out.end() - (n - 1), Generation::Answer{std::move(request), params_of_answer(params, 0)});
}

}  // namespace

void Service::models(const std::shared_ptr<Exchange>& exchange) {
  const Host model = host();
  if (!model) throw ApiError(503, "loading", "the model is being loaded");
  constexpr std::string_view kPrefix = "/v1/models/";
  const std::string& path = exchange->request().path;
  if (path.size() > kPrefix.size()) {
    const std::string name = path.substr(kPrefix.size());
    if (!model->is_called(name))
      throw ApiError(404, "model_not_found", fmt::format("the model \"{}\" is not served here", name),
                     "model");
    exchange->respond({200, "application/json", json_text(model_json(*model, name)), {}});
    return;
  }
  OrderedJson list = OrderedJson::array();
  for (const std::string& name : model->names()) list.push_back(model_json(*model, name));
  exchange->respond(
      {200, "application/json", json_text({{"object", "list"}, {"data", std::move(list)}}), {}});
}

void Service::chat_completions(const std::shared_ptr<Exchange>& exchange) {
  post(exchange, true, [this](const Job& job) {
    ChatWire wire;
    {
      const std::string body = job.exchange->take_body();
      wire = parse_chat_request(body, job.host->model().generation_defaults());
    }
    check_model(*job.host, wire.common);
    wire.common.sampling.validate(job.host->model().info().vocab_size);
    with_media(job, std::move(wire), [this](const Job& with, ChatWire& chat) { answer_chat(with, chat); });
  });
}

void Service::answer_chat(const Job& job, const ChatWire& wire) {
  PreparedRequest request = prepare_chat(context_of(job), wire);
  prepare_constraint(job.host->model(), wire.common.sampling);
  std::vector<Generation::Answer> answers;
  add_answers(answers, std::move(request), wire.common.sampling, wire.common.n);
  std::make_shared<Generation>(job.exchange, make_chat_writer(job.exchange, *job.host, wire), job.host,
                               metrics_, job.received, job.place->on_results())
      ->start(std::move(answers), wire.common.priority);
}

void Service::completions(const std::shared_ptr<Exchange>& exchange) {
  post(exchange, true, [this](const Job& job) {
    const CompletionWire wire =
        parse_completion_request(job.exchange->take_body(), job.host->model().generation_defaults());
    check_model(*job.host, wire.common);
    wire.common.sampling.validate(job.host->model().info().vocab_size);
    if (wire.echo && wire.common.sampling.n_logprobs >= 0)
      throw ApiError(400, "unsupported_value", "echo: not with logprobs", "echo");
    const PrepareContext context = context_of(job);
    prepare_constraint(job.host->model(), wire.common.sampling);
    std::vector<Generation::Answer> answers;
    std::vector<std::string> echoes;
    for (const CompletionPrompt& prompt : wire.prompts) {
      PreparedRequest request = prepare_completion(context, prompt);
      request.cache_salt = wire.common.cache_salt;
      if (wire.echo)
        echoes.push_back(prompt.is_ids ? job.host->model().tokenizer().decode(prompt.ids) : prompt.text);
      add_answers(answers, std::move(request), wire.common.sampling, wire.common.n);
    }
    std::make_shared<Generation>(job.exchange,
                                 make_completion_writer(job.exchange, *job.host, wire, std::move(echoes)),
                                 job.host, metrics_, job.received, job.place->on_results())
        ->start(std::move(answers), wire.common.priority);
  });
}

void Service::tokenize(const std::shared_ptr<Exchange>& exchange) {
  post(exchange, false, [this](const Job& job) {
    const std::string text = job.exchange->take_body();
    const RequestBody body(text);
    const LoadedModel& model = job.host->model();
    const auto answer = [](const Job& to, const std::vector<std::int32_t>& ids) {
      to.exchange->respond({200,
                            "application/json",
                            json_text({{"count", ids.size()},
                                       {"max_model_len", to.host->engine().max_context_tokens()},
                                       {"tokens", ids}}),
                            {}});
    };
    if (body.view().has("messages")) {
      ChatWire wire = parse_chat_request(text, model.generation_defaults());
      check_model(*job.host, wire.common);
      with_media(job, std::move(wire), [this, answer](const Job& with, ChatWire& chat) {
        PrepareContext context = context_of(with);
        context.has_rows = [](const MediaItem&) { return true; };  // nobody looks at the pixels
        answer(with, prepare_chat(context, chat).layout.input_ids);
      });
      return;
    }
    const auto [prompt, add_special] = with_paths([&] {
      return std::pair(body.view().at("prompt").as_string(),
                       body.view().get_bool("add_special_tokens", true));
    });
    answer(job, model.tokenizer().encode(prompt, {.add_special_tokens = add_special}));
  });
}

void Service::detokenize(const std::shared_ptr<Exchange>& exchange) {
  post(exchange, false, [](const Job& job) {
    const std::string text = job.exchange->take_body();
    const RequestBody body(text);
    const Tokenizer& tokenizer = job.host->model().tokenizer();
    const std::vector<std::int32_t> ids = with_paths([&] {
      std::vector<std::int32_t> out;
      for (const JsonView& id : body.view().at("tokens").items())
        out.push_back(static_cast<std::int32_t>(id.as_int(0, tokenizer.vocab_size() - 1)));
      return out;
    });
    job.exchange->respond({200, "application/json", json_text({{"prompt", tokenizer.decode(ids)}}), {}});
  });
}

}  // namespace triptych::server
