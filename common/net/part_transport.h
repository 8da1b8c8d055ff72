#pragma once

#include <memory>

#include <psring/common/base/mesh_part.h>
#include <psring/common/net/transport.h>

namespace psring::net {

/// The transport as a process of one part of the model sees it: peers of `role` have the ranks that they have within
/// the part, from 0. Peers of other roles keep their ranks. So a server and its clients need not know of other parts.
/// Throws protocol if a peer of the role has another part. REQUIRES: `inner` outlives the result.
std::unique_ptr<Transport> make_part_transport(Transport& inner, Role role, MeshPart part);

}  // namespace psring::net
