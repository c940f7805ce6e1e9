// Which thread was busy with what, over time: the events of a traced run as bins and as SVG.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/profile.h"

namespace triptych {

/// A stretch of time cut into equal bins, of every thread.
struct HeatMap {
  struct Cell {
    double busy_share = 0;  // of the bin, 0 to 1
    int zone = -1;          // index of the zone that took most of it; -1: idle
  };
  struct Row {
    int thread = 0;
    std::string label = {};  // empty: "thread" and its place among the rows
    double busy_share = 0;   // of the whole stretch
    std::vector<Cell> cells;
  };
  std::string title;
  std::int64_t duration_ns = 0;
  std::vector<Row> rows;  // the calling thread first
};

struct HeatMaps {
  std::vector<HeatMap> maps;       // tower, prefill, the first decoded tokens: what the events hold
  std::vector<std::string> zones;  // by total time, longest first; the last is time between operations
  std::vector<double> zone_ms;     // summed over threads and maps
};

/// From the events of one answer: the engine's zones "vision", "prefill" and "decode" are the stretches,
/// `operations` the zones of the calling thread that are work on an operation. Workers are busy while they
/// work on a zone; the caller is busy unless it waits for them. Threads that did nothing make up the rows to
/// `n_threads`.
HeatMaps make_heat_maps(const std::vector<ProfileEvent>& events, const std::vector<std::string>& operations,
                        int n_threads, int n_bins);

/// One map of busy time (ProfileMode::kBusy) over the first `duration_ns` of profiling. `label` names the row
/// of a thread from its zones; rows are in the order of their labels.
HeatMaps make_busy_map(const std::vector<ProfileBusy>& busy, std::int64_t duration_ns, int n_bins,
                       std::string (*label)(const std::string& thread_name,
                                            const std::set<std::string>& zones));

/// <svg> elements with their legend, colours by zone, strength by share of the bin. HTML.
std::string heat_maps_html(const HeatMaps& maps);

}  // namespace triptych
