// trigen emit --arch sm_90a --candidate wgmma_sm90:tile=128x256x64,warps=8x1,stages=4,splitk=8,vec=8x8x8,cluster=1,blocks=1 grad_weight,dtype=bf16,B=1,H=1,T=1024,D=1024,K=1,pad=0,wdtype=f32
