# For the scripts beside it, which source it: ndkctl.

# have_ndkctl PROFILE: NDKCTL names a build of ndkctl, which is made with this profile of cargo if the environment names none.
have_ndkctl() {
    [[ -n ${NDKCTL-} ]] && return
    cargo build --quiet --profile "$1" -p ndkctl
    NDKCTL=target/${1/#dev/debug}/ndkctl
}
