// Which linear becomes what within a budget: each alone in each format as the passes would write it, measured
// by what it does to the model's answers, then a knapsack (compress/budget.h).
#pragma once

#include <functional>
#include <vector>

#include "compress/budget.h"
#include "compress/stage_runner.h"

namespace triptych::compress {

/// The choices of every linear: its bytes and what it costs in divergence, in each of the budget's formats.
std::vector<std::vector<Choice>> measure_choices(
    StageRunner& runner, const RecipeBudget& budget, const std::vector<PlannedLinear>& linears,
    CompressReport& report, const std::function<void(const CompressProgress&)>& progress);

/// Sets the formats of `linears` that cost least within `max_bytes`, scales included. Throws
/// Error(kInvalidArgument) when the smallest take more.
void set_formats(const std::vector<std::vector<Choice>>& choices, const RecipeBudget& budget,
                 double max_bytes, std::vector<PlannedLinear>& linears);

/// What the knapsack promises at several sizes between the smallest and the largest choices.
std::vector<FrontPoint> promised_front(const std::vector<std::vector<Choice>>& choices, double n_weights);

/// Share of the conversations whose answer is, token by token, what the model finds most likely.
double answers_found(LoadedModel& model, const CalibrationData& data);

}  // namespace triptych::compress
