// The routes of other APIs: Ollama's, OpenAI's responses, Anthropic's messages. All are chats to the engine.
#include <utility>

#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "server/generation.h"
#include "server/json_text.h"
#include "server/messages_api.h"
#include "server/ollama_api.h"
#include "server/responses_api.h"
#include "server/service.h"
#include "server/single_writer.h"

namespace triptych::server {
namespace {

OrderedJson details_of(const ModelHost& host) {
  const ModelInfo& info = host.model().info();
  return {{"parent_model", ""},        {"format", "safetensors"}, {"family", info.family},
          {"families", {info.family}}, {"parameter_size", ""},    {"quantization_level", ""}};
}

}  // namespace

void Service::chat_of(const std::shared_ptr<Exchange>& exchange, const ParseChat& parse,
                      const MakeWriter& make_writer) {
  post(exchange, true, [this, parse, make_writer](const Job& job) {
    ChatWire wire;
    {
      const std::string body = job.exchange->take_body();
      wire = parse(body, job.host->model().generation_defaults());
    }
    check_model(*job.host, wire.common);
    wire.common.sampling.validate(job.host->model().info().vocab_size);
    with_media(job, std::move(wire), [this, make_writer](const Job& with, ChatWire& chat) {
      PreparedRequest request = prepare_chat(context_of(with), chat);
      prepare_constraint(with.host->model(), chat.common.sampling);
      std::vector<Generation::Answer> answers;
      answers.push_back({std::move(request), chat.common.sampling});
      std::make_shared<Generation>(with.exchange, make_writer(with.exchange, chat, *with.host), with.host,
                                   metrics_, with.received, with.place->on_results())
          ->start(std::move(answers), chat.common.priority);
    });
  });
}

void Service::responses(const std::shared_ptr<Exchange>& exchange) {
  chat_of(exchange, parse_responses_request, make_responses_writer);
}

void Service::messages(const std::shared_ptr<Exchange>& exchange) {
  chat_of(exchange, parse_messages_request, make_messages_writer);
}

void Service::ollama_chat(const std::shared_ptr<Exchange>& exchange) {
  chat_of(exchange, parse_ollama_chat,
          [](std::shared_ptr<Exchange> to, const ChatWire& wire, const ModelHost& host) {
            return make_ollama_writer(std::move(to), wire, host, true);
          });
}

void Service::ollama_generate(const std::shared_ptr<Exchange>& exchange) {
  chat_of(exchange, parse_ollama_generate,
          [](std::shared_ptr<Exchange> to, const ChatWire& wire, const ModelHost& host) {
            return make_ollama_writer(std::move(to), wire, host, false);
          });
}

void Service::ollama_tags(const std::shared_ptr<Exchange>& exchange) {
  const Host model = host();
  if (!model) throw ApiError(503, "loading", "the model is being loaded");
  OrderedJson list = OrderedJson::array();
  for (const std::string& name : model->names())
    list.push_back({{"name", name},
                    {"model", name},
                    {"modified_at", utc_time(model->created_s())},
                    {"size", 0},
                    {"digest", ""},
                    {"details", details_of(*model)}});
  exchange->respond({200, "application/json", json_text({{"models", std::move(list)}}), {}});
}

void Service::ollama_version(const std::shared_ptr<Exchange>& exchange) {
  exchange->respond({200, "application/json", json_text({{"version", build_info().version}}), {}});
}

void Service::ollama_show(const std::shared_ptr<Exchange>& exchange) {
  const Host model = host();
  if (!model) throw ApiError(503, "loading", "the model is being loaded");
  const ModelInfo& info = model->model().info();
  OrderedJson capabilities = {"completion", "vision"};
  if (model->model().chat_template().capabilities().tools) capabilities.push_back("tools");
  const OrderedJson out = {{"details", details_of(*model)},
                           {"model_info",
                            {{"general.architecture", info.family},
                             {info.family + ".context_length", model->engine().max_context_tokens()},
                             {info.family + ".embedding_length", info.hidden_size},
                             {info.family + ".block_count", info.n_layers}}},
                           {"capabilities", std::move(capabilities)}};
  exchange->respond({200, "application/json", json_text(out), {}});
}

}  // namespace triptych::server
