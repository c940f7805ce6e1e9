#include "base/checkpoint_links.h"

#include <gtest/gtest.h>

namespace triptych {
namespace {

TEST(CheckpointLinks, InsideTheFolder) {
  for (const LinkPolicy links :
       {LinkPolicy::kInsideOnly, LinkPolicy::kAllowHubCache, LinkPolicy::kAllowAll}) {
    EXPECT_TRUE(may_lead_to("/models/a", "/models/a/b/config.json", links));
    EXPECT_EQ(may_lead_to("/models/a", "/models/ab/config.json", links), links == LinkPolicy::kAllowAll);
    EXPECT_EQ(may_lead_to("/models/a", "/etc/passwd", links), links == LinkPolicy::kAllowAll);
  }
}

TEST(CheckpointLinks, BlobsOfTheSameRepository) {
  EXPECT_TRUE(may_lead_to("/hub/repo/snapshots/1", "/hub/repo/blobs/abc"));
  EXPECT_TRUE(may_lead_to("/hub/repo/snapshots/1/qformer_tokenizer", "/hub/repo/blobs/abc"))
      << "a folder of it";
  EXPECT_FALSE(may_lead_to("/hub/repo/snapshots/1", "/hub/repo/blobs/abc", LinkPolicy::kInsideOnly));
  EXPECT_FALSE(may_lead_to("/hub/repo/snapshots/1", "/hub/other/blobs/abc"));
  EXPECT_FALSE(may_lead_to("/hub/repo/snapshots/1", "/hub/repo/blobs/deeper/abc"));
  EXPECT_FALSE(may_lead_to("/hub/repo/snapshots/1", "/hub/repo/refs/main"));
  EXPECT_FALSE(may_lead_to("/snapshots", "/blobs/abc"));
}

}  // namespace
}  // namespace triptych
