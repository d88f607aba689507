"""Numbers of the papers that stand beside ours in tables and figures."""

# Pittaluga and Zhuang 2023, tables S2 and S3: by dimension, and in S2 by the number of neighbours.
MEMBERS_NEAR = {
    4: {50: 0.9389, 20: 0.9560, 10: 0.9661, 5: 0.9746},
    16: {50: 0.8727, 20: 0.9054, 10: 0.9273, 5: 0.9438},
}
NO_COLLISION = {2: 0.9742, 4: 0.9430, 8: 0.8546, 16: 0.7303}
