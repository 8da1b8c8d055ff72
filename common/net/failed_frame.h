#pragma once

#include <psring/common/base/text/error.h>
#include <psring/common/net/transport.h>

namespace psring::net {

/// The error that a server's frame of type `failed` tells: the server, and its line. The header's version is the exit
/// status of the error's kind.
Error error_of(const Message& failed);

}  // namespace psring::net
