#include "server/ip_address.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace triptych::server {
namespace {

TEST(IpAddress, TellsThePublicInternetFromAllElse) {
  for (const char* text :
       {"1.1.1.1", "8.8.8.8", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
        "172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0",
        "223.255.255.255", "2606:4700::1111", "2400::1", "2001:200::1"})
    EXPECT_TRUE(is_public_address(parse_ip_address(text))) << text;
  for (const char* text : {"0.0.0.0",
                           "0.1.2.3",
                           "10.0.0.1",
                           "10.255.255.255",
                           "100.64.0.1",
                           "100.127.255.255",
                           "127.0.0.1",
                           "127.255.255.254",
                           "169.254.169.254",
                           "172.16.0.1",
                           "172.31.255.255",
                           "192.0.0.192",
                           "192.0.2.1",
                           "192.88.99.1",
                           "192.168.0.1",
                           "198.18.0.1",
                           "198.19.255.255",
                           "198.51.100.1",
                           "203.0.113.1",
                           "224.0.0.1",
                           "239.255.255.255",
                           "240.0.0.1",
                           "255.255.255.255",
                           "::",
                           "::1",
                           "::127.0.0.1",
                           "::ffff:8.8.8.8",
                           "::ffff:127.0.0.1",
                           "64:ff9b::8.8.8.8",
                           "100::1",
                           "2001::1",
                           "2001:db8::1",
                           "2002:7f00:1::1",
                           "3fff::1",
                           "fc00::1",
                           "fd00:ec2::254",
                           "fe80::1",
                           "fec0::1",
                           "ff02::1",
                           "5f00::1"})
    EXPECT_FALSE(is_public_address(parse_ip_address(text))) << text;
}

TEST(IpAddress, ReadsAndWritesBothKinds) {
  EXPECT_EQ(to_string(parse_ip_address("192.0.2.1")), "192.0.2.1");
  EXPECT_EQ(to_string(parse_ip_address("2001:DB8:0::1")), "2001:db8::1");
  for (const char* text : {"", "1.2.3", "1.2.3.4.5", "::1%lo", "x"})
    EXPECT_THROW(parse_ip_address(text), Error) << text;
}

TEST(IpAddress, ResolvesAddressesWithoutAsking) {
  EXPECT_EQ(resolve_host("127.0.0.1"), std::vector{parse_ip_address("127.0.0.1")});
  EXPECT_EQ(resolve_host("::1"), std::vector{parse_ip_address("::1")});
}

}  // namespace
}  // namespace triptych::server
