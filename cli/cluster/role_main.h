#pragma once

#include <psring/cli/app.h>
#include <psring/common/net/frame.h>

namespace psring::cli {

/// The complete main function of psring-server and psring-worker.
int role_main(const App& app, net::Role role, int argc, char** argv);

}  // namespace psring::cli
