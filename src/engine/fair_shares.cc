#include "engine/fair_shares.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace triptych {
namespace {

constexpr std::size_t kTidySize = 1024;  // entries from which on those without debt are forgotten

}  // namespace

void FairShares::set_weight(const std::string& name, double weight) {
  if (!(weight > 0) || !std::isfinite(weight))
    fail(ErrorCode::kInvalidArgument, "tenant \"{}\": expected a weight above 0, got {}", name, weight);
  weights_[name] = weight;
  if (const auto found = by_name_.find(name); found != by_name_.end())
    entries_.at(found->second).weight = weight;
}

// The least service of those who are here; of none: 0.
double FairShares::floor() const {
  double out = std::numeric_limits<double>::infinity();
  for (const auto& [tenant, entry] : entries_)
    if (entry.n_here > 0) out = std::min(out, entry.served);
  return std::isfinite(out) ? out : 0;
}

// An entry at the floor says nothing that a new one would not.
void FairShares::forget_settled() {
  const double least = floor();
  std::erase_if(entries_, [&](const auto& item) {
    const Entry& entry = item.second;
    if (entry.n_here > 0 || entry.served > least) return false;
    by_name_.erase(entry.name);
    return true;
  });
}

FairShares::Tenant FairShares::enter(std::string_view name) {
  if (entries_.size() >= kTidySize) forget_settled();
  auto found = by_name_.find(name);
  if (found == by_name_.end()) {
    Entry entry{.name = std::string(name)};
    if (const auto weight = weights_.find(name); weight != weights_.end()) entry.weight = weight->second;
    entries_.emplace(next_, std::move(entry));
    found = by_name_.emplace(std::string(name), next_++).first;
  }
  Entry& entry = entries_.at(found->second);
  if (entry.n_here == 0) entry.served = std::max(entry.served, floor());
  ++entry.n_here;
  return found->second;
}

void FairShares::enter_again(Tenant tenant) { ++entries_.at(tenant).n_here; }

// When nobody is here nobody is owed anything.
void FairShares::leave(Tenant tenant) {
  --entries_.at(tenant).n_here;
  if (std::any_of(entries_.begin(), entries_.end(), [](const auto& item) { return item.second.n_here > 0; }))
    return;
  entries_.clear();
  by_name_.clear();
}

void FairShares::charge(Tenant tenant, std::int64_t n_tokens) {
  Entry& entry = entries_.at(tenant);
  entry.served += static_cast<double>(n_tokens) / entry.weight;
}

}  // namespace triptych
