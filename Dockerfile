# The same as tools/demo.sh on a fresh Debian 12:
#   docker build -t zero . && docker run --rm zero
#   docker run --rm zero tools/test.sh --quick
FROM debian:12-slim
WORKDIR /zero

# The packages first and alone, so that a change of the sources does not install them again.
COPY tools/install_deps.sh tools/install_deps.sh
RUN tools/install_deps.sh && rm -rf /var/lib/apt/lists/*

COPY . .
RUN tools/build.sh default programs

# Containers usually forbid the system call with which Open MPI ranks read each other's memory directly.
ENV OMPI_MCA_btl_vader_single_copy_mechanism=none
CMD ["tools/demo.sh"]
