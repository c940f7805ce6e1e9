// What is answered to which request. Knows nothing of sockets.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_keys.h"
#include "server/chat_request.h"
#include "server/generation.h"
#include "server/http.h"
#include "server/http_server.h"
#include "server/media_fetch.h"
#include "server/metrics.h"
#include "server/model_host.h"
#include "server/place.h"
#include "server/prepare.h"
#include "server/request_log.h"
#include "server/work_pool.h"

namespace triptych::server {

struct ServiceOptions {
  ApiKeys keys;
  std::size_t max_queue = 256;  // requests beyond those that the engine may run at once; 429 then
  int n_workers = 2;            // threads that decode and prepare
  MediaRules media;
  FetchRules fetch;                          // nothing is fetched without domains
  std::vector<std::string> allowed_origins;  // CORS; "*": any
  LogRequests log_requests = LogRequests::kOff;
  /// Static content at a path, for GET without a key; nothing: there is none. Any thread.
  std::function<std::optional<HttpResponse>(std::string_view path)> find_page = {};
};

class Service final : public HttpHandler {
 public:
  explicit Service(ServiceOptions options);
  /// Answers that have not ended are cancelled.
  ~Service() override;

  /// Until it is called all that needs a model is 503.
  void set_model(std::unique_ptr<ModelHost> host);
  /// Where an engine shows what it does, for /metrics.
  Metrics& metrics_registry() noexcept { return metrics_.registry(); }
  void set_http_counts(std::function<HttpServerCounts()> counts) { http_counts_ = std::move(counts); }
  /// /health and /ready say 503 from here on; requests are still answered.
  void begin_drain() noexcept { draining_ = true; }
  /// Answers under way, those that wait among them.
  std::size_t n_in_flight() const noexcept { return *n_in_flight_; }
  /// Cancels what is left and ends all threads; later requests are 503.
  void stop();

  std::optional<HttpResponse> refuse(const HttpRequest& head) override;
  void handle(std::shared_ptr<Exchange> exchange) override;
  HttpResponse protocol_error(int status, std::string_view what) override;

 private:
  struct Route;
  using Host = std::shared_ptr<ModelHost>;
  struct Job {
    std::shared_ptr<Exchange> exchange;
    Host host;
    std::chrono::steady_clock::time_point received;
    std::shared_ptr<Place> place;  // null: it needs none
  };
  static const std::vector<Route>& routes();
  static const Route* find_route(std::string_view path);
  std::optional<ApiError> check(const Route* route, const HttpRequest& head) const;
  std::optional<HttpResponse> page_for(const Route* route, const HttpRequest& head) const;
  HttpResponse unserved(const HttpRequest& head, std::string_view route, HttpResponse response);
  Host host() const;

  // In service.cc
  void health(const std::shared_ptr<Exchange>& exchange);
  void live(const std::shared_ptr<Exchange>& exchange);
  void version(const std::shared_ptr<Exchange>& exchange);
  void metrics(const std::shared_ptr<Exchange>& exchange);
  // In service_openai.cc
  void models(const std::shared_ptr<Exchange>& exchange);
  void chat_completions(const std::shared_ptr<Exchange>& exchange);
  void answer_chat(const Job& job, const ChatWire& wire);
  void completions(const std::shared_ptr<Exchange>& exchange);
  void tokenize(const std::shared_ptr<Exchange>& exchange);
  void detokenize(const std::shared_ptr<Exchange>& exchange);

  // In service_other.cc
  using ParseChat = std::function<ChatWire(std::string_view, const SamplingParams&)>;
  using MakeWriter = std::function<std::unique_ptr<AnswerWriter>(std::shared_ptr<Exchange>, const ChatWire&,
                                                                 const ModelHost&)>;
  /// A request for one answer: `parse` reads its body, what `make_writer` makes writes the answer.
  void chat_of(const std::shared_ptr<Exchange>& exchange, const ParseChat& parse,
               const MakeWriter& make_writer);
  void responses(const std::shared_ptr<Exchange>& exchange);
  void messages(const std::shared_ptr<Exchange>& exchange);
  void ollama_chat(const std::shared_ptr<Exchange>& exchange);
  void ollama_generate(const std::shared_ptr<Exchange>& exchange);
  void ollama_tags(const std::shared_ptr<Exchange>& exchange);
  void ollama_version(const std::shared_ptr<Exchange>& exchange);
  void ollama_show(const std::shared_ptr<Exchange>& exchange);

  /// Counts a request that generates; throws ApiError 429 over the limits of the server or of its key.
  std::shared_ptr<Place> take_place(const HttpRequest& request, const ModelHost& host);
  /// Runs `work` on a thread of the pool, and answers with what it throws. Requests that generate are counted
  /// and refused over the limit.
  void post(const std::shared_ptr<Exchange>& exchange, bool takes_place,
            std::function<void(const Job&)> work);
  /// As `post`, for work that has a request in hand: what it throws is its answer.
  void run_guarded(const Job& job, const std::function<void()>& work);
  /// Calls `rest` with the chat when its pictures are at hand: at once, or on a thread of the pool after
  /// those on other hosts were fetched.
  void with_media(const Job& job, ChatWire wire, std::function<void(const Job&, ChatWire&)> rest);
  PrepareContext context_of(const Job& job);
  void check_model(const ModelHost& host, const CommonParams& common) const;

  const ServiceOptions options_;
  ServerMetrics metrics_;
  std::function<HttpServerCounts()> http_counts_;
  std::shared_ptr<std::atomic<std::size_t>> n_in_flight_ = std::make_shared<std::atomic<std::size_t>>(0);
  const std::shared_ptr<KeyUsage> key_usage_;
  std::atomic<bool> draining_{false}, stopping_{false};
  mutable std::mutex host_mutex_;
  Host host_;
  std::unique_ptr<WorkPool> pool_;
  const MediaFetcher fetcher_;
  std::unique_ptr<WorkPool> fetch_pool_;  // threads that wait for other hosts; null: none are asked
};

}  // namespace triptych::server
