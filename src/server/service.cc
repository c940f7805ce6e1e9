#include "server/service.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/json.h"
#include "base/log.h"
#include "server/json_text.h"
#include "server/metrics_text.h"
#include "server/served_exchange.h"

namespace triptych::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFetchThreads = 8;

bool is_json(std::string_view type) {
  std::string word(type.substr(0, type.find(';')));
  std::erase(word, ' ');
  std::transform(word.begin(), word.end(), word.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return word.empty() || word == "application/json" || word == "text/json" ||
         (word.rfind("application/", 0) == 0 && word.size() > 5 && word.substr(word.size() - 5) == "+json");
}

// The origin to name in the answer; empty: the browser may not read it.
std::string allowed_origin(const std::vector<std::string>& allowed, const HttpRequest& request) {
  const std::string origin(request.header("origin"));
  if (origin.empty()) return {};
  for (const std::string& one : allowed)
    if (one == "*" || one == origin) return origin;
  return {};
}

}  // namespace

struct Service::Route {
  std::string_view method, path;
  void (Service::*answer)(const std::shared_ptr<Exchange>&);
  bool needs_key = true;
};

const std::vector<Service::Route>& Service::routes() {
  static const std::vector<Route> all = {
      {"GET", "/health", &Service::health, false},
      {"GET", "/ready", &Service::health, false},
      {"GET", "/live", &Service::live, false},
      {"GET", "/version", &Service::version, false},
      {"GET", "/metrics", &Service::metrics, false},
      {"GET", "/v1/models", &Service::models},
      {"GET", "/v1/models/", &Service::models},  // and whatever follows
      {"POST", "/v1/chat/completions", &Service::chat_completions},
      {"POST", "/v1/completions", &Service::completions},
      {"POST", "/tokenize", &Service::tokenize},
      {"POST", "/detokenize", &Service::detokenize},
      {"POST", "/v1/responses", &Service::responses},
      {"POST", "/v1/messages", &Service::messages},
      {"POST", "/api/chat", &Service::ollama_chat},
      {"POST", "/api/generate", &Service::ollama_generate},
      {"POST", "/api/show", &Service::ollama_show},
      {"GET", "/api/tags", &Service::ollama_tags},
      {"GET", "/api/version", &Service::ollama_version},
  };
  return all;
}

const Service::Route* Service::find_route(std::string_view path) {
  for (const Route& route : routes())
    if (route.path.size() > 1 && route.path.back() == '/' ? path.substr(0, route.path.size()) == route.path
                                                          : path == route.path)
      return &route;
  return nullptr;
}

Service::Service(ServiceOptions options)
    : options_(std::move(options)),
      key_usage_(std::make_shared<KeyUsage>(options_.keys)),
      pool_(std::make_unique<WorkPool>(options_.n_workers)),
      fetcher_(options_.fetch) {
  if (fetcher_.enabled()) fetch_pool_ = std::make_unique<WorkPool>(kFetchThreads);
}

Service::~Service() { stop(); }

void Service::stop() {
  begin_drain();
  stopping_ = true;
  fetch_pool_ = nullptr;  // first: its work goes on in the pool, whose work submits
  pool_ = nullptr;
  Host last;
  {
    const std::lock_guard lock(host_mutex_);
    last = std::exchange(host_, nullptr);
  }
  if (last) last->engine().stop();
}

void Service::set_model(std::unique_ptr<ModelHost> host) {
  const std::lock_guard lock(host_mutex_);
  host_ = std::move(host);
}

Service::Host Service::host() const {
  const std::lock_guard lock(host_mutex_);
  return host_;
}

std::optional<ApiError> Service::check(const Route* route, const HttpRequest& head) const {
  if (route == nullptr)
    return ApiError(404, "not_found", fmt::format("no such path: {} {}", head.method, head.path));
  const bool may_head = head.method == "HEAD" && route->method == "GET";
  if (head.method != route->method && !may_head)
    return ApiError(405, "method_not_allowed", fmt::format("{} takes {}", route->path, route->method));
  if (route->needs_key && !options_.keys.empty()) {
    const std::string_view key = ApiKeys::key_of(head);
    if (key.empty())
      return ApiError(401, "missing_api_key", "an API key is needed: Authorization: Bearer KEY");
    if (!options_.keys.find(key)) return ApiError(401, "invalid_api_key", "the API key is not valid");
  }
  // Ollama's examples leave curl's own type. A web page cannot use that: its browser names the origin.
  const bool may_be_form = route->path.substr(0, 5) == "/api/" && head.header("origin").empty();
  if (route->method == "POST" && !is_json(head.header("content-type")) && !may_be_form)
    return ApiError(415, "unsupported_media_type", "the body has to be application/json");
  return std::nullopt;
}

std::optional<HttpResponse> Service::page_for(const Route* route, const HttpRequest& head) const {
  if (route != nullptr || !options_.find_page || (head.method != "GET" && head.method != "HEAD"))
    return std::nullopt;
  return options_.find_page(head.path);
}

std::optional<HttpResponse> Service::refuse(const HttpRequest& head) {
  if (head.method == "OPTIONS" && head.body.empty()) return std::nullopt;  // answered in handle()
  const Route* route = find_route(head.path);
  const auto error = check(route, head);
  if (!error || page_for(route, head)) return std::nullopt;
  // A short body is read first, so that the connection can go on.
  if (const std::string_view length = head.header("content-length");
      head.header("transfer-encoding").empty() && head.header("expect").empty() && length.size() <= 4)
    return std::nullopt;
  return unserved(head, route == nullptr ? "other" : route->path, error->response(head.path));
}

HttpResponse Service::protocol_error(int status, std::string_view what) {
  const ApiError error(status,
                       status == 413   ? "request_too_large"
                       : status == 503 ? "overloaded"
                                       : "invalid_http",
                       std::string(what));
  return unserved({}, "other", error.response());
}

// What no exchange is made for is counted and logged all the same.
HttpResponse Service::unserved(const HttpRequest& head, std::string_view route, HttpResponse response) {
  metrics_.count_http(route, response.status, 0);
  RequestRecord record;
  record.id = request_id_of(head);
  record.method = head.method;
  record.route = std::string(route);
  record.status = response.status;
  response.headers.emplace_back("x-request-id", record.id);
  if (options_.log_requests != LogRequests::kOff) log_request(record);
  return response;
}

void Service::handle(std::shared_ptr<Exchange> exchange) {
  const HttpRequest& request = exchange->request();
  const Route* route = find_route(request.path);
  const auto key = options_.keys.find(ApiKeys::key_of(request));
  const auto served = std::make_shared<ServedExchange>(
      exchange, metrics_, options_.log_requests,
      ServedRoute{.name = std::string(route ? route->path : "other"),
                  .origin = allowed_origin(options_.allowed_origins, request),
                  .key_name = key ? options_.keys.limits(*key).name : ""});
  try {
    if (request.method == "OPTIONS") {
      HttpResponse response{204, "", "", {}};
      if (!allowed_origin(options_.allowed_origins, request).empty())
        response.headers = {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
                            {"Access-Control-Allow-Headers", "Authorization, Content-Type, X-Api-Key"},
                            {"Access-Control-Max-Age", "600"}};
      served->respond(std::move(response));
    } else if (auto page = page_for(route, request)) {
      served->respond(std::move(*page));
    } else if (const auto error = check(route, request)) {
      served->respond(error->response(request.path));
    } else {
      (this->*route->answer)(served);
    }
  } catch (const Error& error) {
    served->respond(ApiError::of(error).response(request.path));
  } catch (const std::exception& failure) {
    served->respond(ApiError(500, "internal_error", failure.what()).response());
  }
}

void Service::health(const std::shared_ptr<Exchange>& exchange) {
  if (draining_) throw ApiError(503, "draining", "the server is shutting down");
  if (!host()) throw ApiError(503, "loading", "the model is being loaded");
  exchange->respond({200, "application/json", R"({"status":"ok"})", {}});
}

void Service::live(const std::shared_ptr<Exchange>& exchange) {
  exchange->respond({200, "application/json", R"({"status":"ok"})", {}});
}

void Service::version(const std::shared_ptr<Exchange>& exchange) {
  const BuildInfo& build = build_info();
  exchange->respond(
      {200, "application/json", json_text({{"version", build.version}, {"revision", build.revision}}), {}});
}

void Service::metrics(const std::shared_ptr<Exchange>& exchange) {
  ServerMetrics::Moment now;
  if (const Host model = host()) now.engine = model->engine().counts();
  now.n_preparing = pool_->n_waiting();
  now.n_in_flight = n_in_flight();
  if (http_counts_) {
    const HttpServerCounts counts = http_counts_();
    now.n_connections = counts.n_connections;
    now.n_accepted = counts.n_accepted;
    now.n_refused = counts.n_refused;
    now.n_slow_readers = counts.n_slow_readers;
  }
  now.version = build_info().version;
  exchange->respond({200, std::string(kMetricsContentType), metrics_.text(now), {}});
}

std::shared_ptr<Place> Service::take_place(const HttpRequest& request, const ModelHost& host) {
  const std::size_t limit =
      options_.max_queue + static_cast<std::size_t>(host.engine_options().max_sequences);
  if (n_in_flight_->fetch_add(1) >= limit) {
    n_in_flight_->fetch_sub(1);
    throw ApiError(429, "queue_full", "too many requests wait already; try again later");
  }
  const auto key = options_.keys.find(ApiKeys::key_of(request));
  if (const auto refusal = key ? key_usage_->begin(*key) : std::nullopt) {
    n_in_flight_->fetch_sub(1);
    ApiError error(429, "rate_limit_exceeded", refusal->what);
    error.set_retry_after(refusal->retry_after_s);
    throw error;
  }
  return std::make_shared<Place>(n_in_flight_, key_usage_, key);
}

void Service::post(const std::shared_ptr<Exchange>& exchange, bool takes_place,
                   std::function<void(const Job&)> work) {
  if (stopping_) throw ApiError(503, "shutting_down", "the server is shutting down");
  Job job{exchange, host(), Clock::now(), nullptr};
  if (!job.host) throw ApiError(503, "loading", "the model is being loaded");
  if (takes_place) job.place = take_place(exchange->request(), *job.host);
  pool_->post([this, job, work = std::move(work)] { run_guarded(job, [&] { work(job); }); });
}

void Service::run_guarded(const Job& job, const std::function<void()>& work) {
  if (!job.exchange->is_open()) return;
  try {
    if (stopping_) throw ApiError(503, "shutting_down", "the server is shutting down");
    work();
  } catch (const Error& error) {
    job.exchange->respond(ApiError::of(error).response(job.exchange->request().path));
  } catch (const std::bad_alloc&) {
    job.exchange->respond(ApiError(503, "out_of_memory", "no memory is left for this request").response());
  } catch (const std::exception& failure) {
    log_warning("a request failed: {}", failure.what());
    job.exchange->respond(ApiError(500, "internal_error", failure.what()).response());
  }
}

void Service::with_media(const Job& job, ChatWire wire, std::function<void(const Job&, ChatWire&)> rest) {
  if (!fetch_pool_ || !names_hosts(wire)) {
    rest(job, wire);
    return;
  }
  // Shared: what a pool runs is copied.
  const auto kept = std::make_shared<ChatWire>(std::move(wire));
  fetch_pool_->post([this, job, kept, rest = std::move(rest)] {
    run_guarded(job, [&] {
      const auto budget = std::make_shared<MediaFetcher::Budget>(
          fetcher_, [this, exchange = job.exchange] { return stopping_ || !exchange->is_open(); });
      fetch_media(context_of(job), fetcher_, *budget, *kept);
      pool_->post([this, job, kept, budget, rest] { run_guarded(job, [&] { rest(job, *kept); }); });
    });
  });
}

PrepareContext Service::context_of(const Job& job) {
  return {job.host->model(), options_.media, metrics_,
          [exchange = job.exchange] { return !exchange->is_open(); },
          [host = job.host](const MediaItem& item) { return host->engine().has_media_rows(item); }};
}

void Service::check_model(const ModelHost& host, const CommonParams& common) const {
  if (!common.model.empty() && !host.is_called(common.model))
    throw ApiError(404, "model_not_found", fmt::format("the model \"{}\" is not served here", common.model),
                   "model");
  for (const std::string& field : common.unknown_fields)
    log_debug("field not known: {}", field.substr(0, 64));
}

}  // namespace triptych::server
