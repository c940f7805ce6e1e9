// How much each tenant (an API key, say) has been served, so that those who want more than there is get
// shares in proportion to their weights, whatever they send. A tenant's service is the tokens computed for it
// by its weight; the one served least goes first. Whoever comes back after a pause starts from the least of
// those who are here: nobody saves up by being away (start-time fair queueing, Goyal, Vin and Chen 1996).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

namespace triptych {

class FairShares {
 public:
  using Tenant = std::uint32_t;

  /// The share of a tenant beside the others' (1). Throws Error(kInvalidArgument) unless it is positive and
  /// finite.
  void set_weight(const std::string& name, double weight);
  /// One request more of this tenant is here; leave() when it has ended.
  Tenant enter(std::string_view name);
  void enter_again(Tenant tenant);  // which is here
  void leave(Tenant tenant);
  /// Tokens by weight; comparable among those who are here.
  double served(Tenant tenant) const { return entries_.at(tenant).served; }
  /// `n_tokens` more, or fewer when what was charged before was not used.
  void charge(Tenant tenant, std::int64_t n_tokens);

  /// Tenants that are here or in debt.
  std::size_t size() const noexcept { return entries_.size(); }

 private:
  struct Entry {
    std::string name;
    double weight = 1;
    double served = 0;
    std::int64_t n_here = 0;  // requests
  };
  double floor() const;
  void forget_settled();

  std::map<std::string, double, std::less<>> weights_;  // other than 1
  std::map<std::string, Tenant, std::less<>> by_name_;
  std::unordered_map<Tenant, Entry> entries_;
  Tenant next_ = 0;
};

}  // namespace triptych
