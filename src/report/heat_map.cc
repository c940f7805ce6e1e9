#include "report/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "report/html_text.h"
#include "report/text_table.h"

namespace triptych {
namespace {

constexpr std::string_view kBetween = "between operations";
constexpr int kMaxDecodeSteps = 4;  // one map holds so many
constexpr const char* kColors[] = {"#c2410c", "#0b7285", "#2b8a3e", "#7048b6", "#b8860b",
                                   "#a61e4d", "#1864ab", "#5c940d", "#862e9c", "#d9480f"};
constexpr const char* kOtherColor = "#868e96";

struct Stretch {
  std::string title;
  std::int64_t begin_ns = 0, end_ns = 0;
};

std::int64_t end_of(const ProfileEvent& event) { return event.start_ns + event.duration_ns; }

std::vector<Stretch> stretches_of(const std::vector<ProfileEvent>& events) {
  std::vector<Stretch> out;
  Stretch decode;
  int n_decode = 0;
  std::vector<const ProfileEvent*> tops;
  for (const ProfileEvent& event : events)
    if (event.name == "vision" || event.name == "prefill" || event.name == "decode") tops.push_back(&event);
  std::sort(tops.begin(), tops.end(), [](const auto* a, const auto* b) { return a->start_ns < b->start_ns; });
  for (const ProfileEvent* event : tops) {
    if (event->name == "decode") {
      if (n_decode == kMaxDecodeSteps) continue;
      if (n_decode++ == 0) decode.begin_ns = event->start_ns;
      decode.end_ns = end_of(*event);
    } else {
      out.push_back(
          {event->name == "vision" ? "tower and projector" : "prefill", event->start_ns, end_of(*event)});
    }
  }
  if (n_decode > 0) {
    decode.title = n_decode == 1 ? "one decoded token" : fmt::format("{} decoded tokens", n_decode);
    out.push_back(decode);
  }
  return out;
}

// Time by zone in every bin of one thread.
class Bins {
 public:
  Bins(const Stretch& stretch, int n_bins)
      : begin_(static_cast<double>(stretch.begin_ns)),
        width_(std::max(1.0, static_cast<double>(stretch.end_ns - stretch.begin_ns) / n_bins)),
        zones_(static_cast<std::size_t>(n_bins)),
        waits_(static_cast<std::size_t>(n_bins), 0.0) {}

  double width() const { return width_; }

  void add(const ProfileEvent& event) {
    const double from = (static_cast<double>(event.start_ns) - begin_) / width_;
    const double to = (static_cast<double>(end_of(event)) - begin_) / width_;
    const auto n = static_cast<std::int64_t>(zones_.size());
    for (auto i = std::max<std::int64_t>(0, static_cast<std::int64_t>(from));
         i < n && static_cast<double>(i) < to; ++i) {
      const double low = std::max(from, static_cast<double>(i));
      const double high = std::min(to, static_cast<double>(i + 1));
      if (high <= low) continue;
      double& sum = event.name == kWaitZone ? waits_[static_cast<std::size_t>(i)]
                                            : zones_[static_cast<std::size_t>(i)][event.name];
      sum += (high - low) * width_;
    }
  }

  // The rest of each bin of a thread that is never idle but when it waits.
  void fill_between() {
    for (auto& bin : zones_) {
      double sum = 0;
      for (const auto& [name, ns] : bin) sum += ns;
      if (sum < width_) bin[std::string(kBetween)] += width_ - sum;
    }
  }

  const std::map<std::string, double>& zones(std::size_t bin) const { return zones_[bin]; }
  double busy_share(std::size_t bin) const {
    double sum = -waits_[bin];
    for (const auto& [name, ns] : zones_[bin]) sum += ns;
    return std::clamp(sum / width_, 0.0, 1.0);
  }

 private:
  double begin_, width_;
  std::vector<std::map<std::string, double>> zones_;
  std::vector<double> waits_;
};

// Stages of an engine look the same in every map.
constexpr std::pair<std::string_view, const char*> kStageColors[] = {
    {"vision", "#0b7285"},     {"prefill", "#c2410c"},      {"decode", "#2b8a3e"},
    {"preprocess", "#7048b6"}, {"image decode", "#b8860b"}, {"tokenizer", "#a61e4d"}};

std::string color_of(const HeatMaps& maps, int zone) {
  if (zone >= 0)
    for (const auto& [name, color] : kStageColors)
      if (maps.zones[static_cast<std::size_t>(zone)] == name) return color;
  if (zone < 0 || zone >= static_cast<int>(std::size(kColors)) ||
      maps.zones[static_cast<std::size_t>(zone)] == kBetween)
    return kOtherColor;
  return kColors[zone];
}

std::string map_svg(const HeatMaps& maps, const HeatMap& map) {
  constexpr double kLabel = 76, kChart = 760, kShare = 64, kRow = 26;
  const double height = kRow * static_cast<double>(map.rows.size());
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"heat\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" role=\"img\" aria-label=\"{2}\">\n",
      kLabel + kChart + kShare, height, html_escape(map.title));
  for (std::size_t r = 0; r < map.rows.size(); ++r) {
    const HeatMap::Row& row = map.rows[r];
    const double y = kRow * static_cast<double>(r);
    const double width = kChart / static_cast<double>(std::max<std::size_t>(1, row.cells.size()));
    out += fmt::format(
        "<text x=\"0\" y=\"{:.1f}\">{}</text>"
        "<rect class=\"idle\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n",
        y + 17, row.label.empty() ? fmt::format("thread {}", r) : html_escape(row.label), kLabel, y + 2,
        kChart, kRow - 4);
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
      const HeatMap::Cell& cell = row.cells[i];
      if (cell.zone < 0 || cell.busy_share < 0.005) continue;
      out += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\" "
          "fill-opacity=\"{:.2f}\"/>\n",
          kLabel + width * static_cast<double>(i), y + 2, width + 0.05, kRow - 4, color_of(maps, cell.zone),
          cell.busy_share);
    }
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", kLabel + kChart + 6, y + 17,
                       format_percent(row.busy_share));
  }
  return out + "</svg>\n";
}

}  // namespace

HeatMaps make_heat_maps(const std::vector<ProfileEvent>& events, const std::vector<std::string>& operations,
                        int n_threads, int n_bins) {
  n_bins = std::max(n_bins, 1);
  HeatMaps out;
  const std::set<std::string> is_operation(operations.begin(), operations.end());
  int caller = 0;
  for (const ProfileEvent& event : events)
    if (event.name == "prefill" || event.name == "decode" || event.name == "vision") caller = event.thread;
  std::map<std::string, double> totals_ns;
  std::vector<std::vector<std::vector<std::string>>> longest;  // by map, row, bin
  for (const Stretch& stretch : stretches_of(events)) {
    std::map<int, Bins> by_thread;
    by_thread.try_emplace(caller, stretch, n_bins);
    for (const ProfileEvent& event : events) {
      if (end_of(event) <= stretch.begin_ns || event.start_ns >= stretch.end_ns) continue;
      if (!is_operation.contains(event.name) && event.name != kWaitZone) continue;
      by_thread.try_emplace(event.thread, stretch, n_bins).first->second.add(event);
    }
    by_thread.at(caller).fill_between();
    HeatMap map;
    map.title = stretch.title;
    map.duration_ns = stretch.end_ns - stretch.begin_ns;
    longest.emplace_back();
    const auto add_row = [&](int thread, const Bins& bins) {
      HeatMap::Row row;
      row.thread = thread;
      longest.back().emplace_back();
      for (std::size_t i = 0; i < static_cast<std::size_t>(n_bins); ++i) {
        const auto& zones = bins.zones(i);
        const auto most = std::max_element(zones.begin(), zones.end(),
                                           [](const auto& a, const auto& b) { return a.second < b.second; });
        for (const auto& [name, ns] : zones) totals_ns[name] += ns;
        longest.back().back().push_back(most == zones.end() ? std::string() : most->first);
        row.cells.push_back({bins.busy_share(i), -1});
        row.busy_share += bins.busy_share(i) / n_bins;
      }
      map.rows.push_back(std::move(row));
    };
    add_row(caller, by_thread.at(caller));
    for (const auto& [thread, bins] : by_thread)
      if (thread != caller) add_row(thread, bins);
    while (static_cast<int>(map.rows.size()) < n_threads) add_row(0, Bins(stretch, n_bins));
    out.maps.push_back(std::move(map));
  }
  const double between_ns = totals_ns[std::string(kBetween)];
  totals_ns.erase(std::string(kBetween));
  std::vector<std::pair<std::string, double>> order(totals_ns.begin(), totals_ns.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  order.emplace_back(kBetween, between_ns);
  std::map<std::string, int> index;
  for (const auto& [name, ns] : order) {
    index[name] = static_cast<int>(out.zones.size());
    out.zones.push_back(name);
    out.zone_ms.push_back(ns / 1e6);
  }
  for (std::size_t m = 0; m < out.maps.size(); ++m)
    for (std::size_t r = 0; r < out.maps[m].rows.size(); ++r)
      for (std::size_t i = 0; i < static_cast<std::size_t>(n_bins); ++i)
        if (const std::string& name = longest[m][r][i]; !name.empty())
          out.maps[m].rows[r].cells[i].zone = index.at(name);
  return out;
}

HeatMaps make_busy_map(const std::vector<ProfileBusy>& busy, std::int64_t duration_ns, int n_bins,
                       std::string (*label)(const std::string& thread_name,
                                            const std::set<std::string>& zones)) {
  HeatMaps out;
  std::map<std::string, double> totals_ns;
  for (const ProfileBusy& one : busy)
    for (const float ns : one.busy_ns) totals_ns[one.zone] += std::max(0.0, static_cast<double>(ns));
  std::vector<std::pair<std::string, double>> order(totals_ns.begin(), totals_ns.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::map<std::string, std::size_t> index;
  for (const auto& [name, ns] : order) {
    index[name] = out.zones.size();
    out.zones.push_back(name);
    out.zone_ms.push_back(ns / 1e6);
  }
  const auto n_stretches = std::max<std::int64_t>(1, (duration_ns + kBusyStretch_ns - 1) / kBusyStretch_ns);
  const auto n = static_cast<std::size_t>(std::clamp<std::int64_t>(n_bins, 1, n_stretches));
  struct Thread {
    std::string name;
    std::set<std::string> zones;
    std::vector<std::vector<double>> ns;  // by bin and zone
  };
  std::map<int, Thread> threads;
  for (const ProfileBusy& one : busy) {
    Thread& thread = threads[one.thread];
    thread.name = one.thread_name;
    thread.zones.insert(one.zone);
    thread.ns.resize(n, std::vector<double>(out.zones.size()));
    for (std::size_t i = 0; i < one.busy_ns.size(); ++i) {
      const std::size_t bin = i * n / static_cast<std::size_t>(n_stretches);
      if (bin < n) thread.ns[bin][index[one.zone]] += std::max(0.0, static_cast<double>(one.busy_ns[i]));
    }
  }
  HeatMap map;
  map.title = "threads";
  map.duration_ns = duration_ns;
  for (const auto& [number, thread] : threads) {
    HeatMap::Row row;
    row.thread = number;
    row.label = label(thread.name, thread.zones);
    double sum_ns = 0;
    for (std::size_t bin = 0; bin < n; ++bin) {
      const std::vector<double>& zones = thread.ns[bin];
      const auto most = std::max_element(zones.begin(), zones.end());
      double ns = 0;
      for (const double one : zones) ns += one;
      sum_ns += ns;
      // Stretches are whole, so bins differ by one of them.
      const auto n_in_bin =
          static_cast<double>(((bin + 1) * static_cast<std::size_t>(n_stretches) + n - 1) / n -
                              (bin * static_cast<std::size_t>(n_stretches) + n - 1) / n);
      row.cells.push_back({std::clamp(ns / (n_in_bin * static_cast<double>(kBusyStretch_ns)), 0.0, 1.0),
                           ns > 0 ? static_cast<int>(most - zones.begin()) : -1});
    }
    if (duration_ns > 0) row.busy_share = std::min(1.0, sum_ns / static_cast<double>(duration_ns));
    map.rows.push_back(std::move(row));
  }
  std::stable_sort(map.rows.begin(), map.rows.end(),
                   [](const auto& a, const auto& b) { return a.label < b.label; });
  out.maps.push_back(std::move(map));
  return out;
}

std::string heat_maps_html(const HeatMaps& maps) {
  std::string out;
  for (const HeatMap& map : maps.maps)
    out += fmt::format("<h3>{}, {}</h3>\n{}", html_escape(map.title),
                       format_ms(static_cast<double>(map.duration_ns) / 1e6), map_svg(maps, map));
  out += "<p class=\"legend\">";
  for (std::size_t i = 0; i < maps.zones.size(); ++i)
    out += fmt::format("<span><i style=\"background:{}\"></i>{} {}</span>\n",
                       color_of(maps, static_cast<int>(i)), html_escape(maps.zones[i]),
                       format_ms(maps.zone_ms[i]));
  return out + "</p>\n";
}

}  // namespace triptych
