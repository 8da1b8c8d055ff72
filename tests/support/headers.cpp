// The headers that all tests include are precompiled with this source (tests/support/CMakeLists.txt).
